import pytest

from superinfer_kube.client import KubeClient, find_cluster
from superinfer_kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeConfigError,
    NotFound,
    Unavailable,
)
from superinfer_kube.resources import CONFIG_MAPS, SERVICES

pytestmark = pytest.mark.apiserver


def config_map(namespace, name, **data):
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


@pytest.fixture
async def client(apiserver):
    client = KubeClient.connect(field_manager="tests", kubeconfig=apiserver.kubeconfig)
    yield client
    await client.close()


async def test_an_object_is_made_changed_listed_and_deleted(client, namespace):
    await client.create(CONFIG_MAPS, config_map(namespace, "one", colour="red"))
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map(namespace, "one"))
    patched = await client.patch(CONFIG_MAPS, "one", namespace, {"data": {"size": "small"}})
    assert patched["data"] == {"colour": "red", "size": "small"}
    listing = await client.list(CONFIG_MAPS, namespace, fields="metadata.name=one")
    assert [item["metadata"]["name"] for item in listing.items] == ["one"]
    assert listing.resource_version
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "one", namespace, uid="00000000-0000-0000-0000-000000000000")
    await client.delete(CONFIG_MAPS, "one", namespace, uid=patched["metadata"]["uid"])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "one", namespace)


async def test_a_listing_in_pages_is_complete(client, namespace):
    for number in range(7):
        await client.create(CONFIG_MAPS, config_map(namespace, f"n{number}"))
    listing = await client.list(CONFIG_MAPS, namespace, page=3)
    assert sorted(item["metadata"]["name"] for item in listing.items) == [f"n{n}" for n in range(7)]


async def test_apply_owns_what_it_says_and_names_the_other_owner(client, apiserver, namespace):
    await client.apply(CONFIG_MAPS, config_map(namespace, "shared", a="1", b="1"))
    await client.apply(CONFIG_MAPS, config_map(namespace, "shared", a="1"))
    assert (await client.get(CONFIG_MAPS, "shared", namespace))["data"] == {"a": "1"}
    other = KubeClient.connect(field_manager="somebody-else", kubeconfig=apiserver.kubeconfig)
    try:
        with pytest.raises(Conflict, match="tests"):
            await other.apply(CONFIG_MAPS, config_map(namespace, "shared", a="2"), force=False)
        await other.apply(CONFIG_MAPS, config_map(namespace, "shared", a="2"))
    finally:
        await other.close()
    assert (await client.get(CONFIG_MAPS, "shared", namespace))["data"] == {"a": "2"}


async def test_a_dry_run_changes_nothing(client, namespace):
    await client.apply(CONFIG_MAPS, config_map(namespace, "never", a="1"), dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "never", namespace)


async def test_a_refused_object_names_the_field(client, namespace):
    service = {"metadata": {"name": "s", "namespace": namespace}, "spec": {"ports": [{"port": 99999}]}}
    with pytest.raises(Invalid, match=r"spec\.ports\[0\]\.port"):
        await client.create(SERVICES, service)


async def test_a_token_that_is_replaced_is_read_again(client, apiserver, namespace, tmp_path):
    """As the kubelet does with a service account's token: the old one stops working, the file has the new."""
    token = tmp_path / "token"
    token.write_text("expired")
    config = find_cluster(apiserver.kubeconfig)
    config.user.token = None
    config.user.token_file = str(token)
    rotating = KubeClient(config, field_manager="tests")
    try:
        with pytest.raises(Forbidden):
            await rotating.list(CONFIG_MAPS, namespace)
        token.write_text(apiserver.token)
        assert (await rotating.list(CONFIG_MAPS, namespace)).items == []
    finally:
        await rotating.close()


async def test_a_server_that_is_not_there_is_unavailable(apiserver):
    config = find_cluster(apiserver.kubeconfig)
    config.cluster.server = "https://127.0.0.1:1"
    client = KubeClient(config, field_manager="tests")
    try:
        with pytest.raises(Unavailable):
            await client.list(CONFIG_MAPS)
    finally:
        await client.close()


def test_without_a_cluster_it_says_what_to_do(tmp_path):
    with pytest.raises(KubeConfigError, match="KUBECONFIG"):
        find_cluster(tmp_path / "nothing")
