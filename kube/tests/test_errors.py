import pytest

from superinfer_kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Unavailable,
    error_from_status,
)
from superinfer_kube.resources import NODES, PODS, SLO_CONTRACTS


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        pytest.param(404, "NotFound", NotFound, id="what is not there"),
        pytest.param(409, "Conflict", Conflict, id="changed by somebody else"),
        pytest.param(409, "AlreadyExists", AlreadyExists, id="there already"),
        pytest.param(410, "Expired", Gone, id="a version that is too old"),
        pytest.param(422, "Invalid", Invalid, id="a value the schema refuses"),
        pytest.param(400, "BadRequest", Invalid, id="nonsense"),
        pytest.param(401, "Unauthorized", Forbidden, id="an expired token"),
        pytest.param(403, "Forbidden", Forbidden, id="not allowed"),
        pytest.param(429, "TooManyRequests", Unavailable, id="too much at once"),
        pytest.param(503, "ServiceUnavailable", Unavailable, id="a server that starts"),
        pytest.param(504, "Timeout", Unavailable, id="a server that is slow"),
        pytest.param(418, "", KubeError, id="a status nobody knows"),
    ],
)
def test_an_answer_becomes_the_error_that_says_what_to_do(status, reason, kind):
    document = {"reason": reason, "message": "spec.tier: Unsupported value"}
    error = error_from_status(status, document, what="apply slocontracts shop/a", retry_after="7")
    assert type(error) is kind
    assert error.message == "spec.tier: Unsupported value"
    assert str(error) == "apply slocontracts shop/a: spec.tier: Unsupported value"
    if kind is Unavailable:
        assert error.retry_after_s == 7.0


def test_an_answer_that_is_no_status_still_says_what_failed():
    error = error_from_status(502, None, what="get pods a/b")
    assert isinstance(error, Unavailable)
    assert "502" in str(error)


def test_paths_are_those_of_the_api():
    assert PODS.path("a", "b") == "/api/v1/namespaces/a/pods/b"
    assert PODS.path() == "/api/v1/pods"
    assert NODES.path(name="n") == "/api/v1/nodes/n"
    assert SLO_CONTRACTS.path("a", "b", "status") == (
        "/apis/superinfer.dev/v1alpha1/namespaces/a/slocontracts/b/status"
    )
    with pytest.raises(ValueError, match="a namespace is needed"):
        PODS.path(name="b")
