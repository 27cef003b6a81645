"""Schemathesis over everything the OpenAPI document describes: no 500, no other form of error, no leak."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from superinfer_ingress.openapi import OPENAPI

schema = schemathesis.openapi.from_dict(OPENAPI)

EXAMPLES = 12


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.filterwarnings("default")
def test_whatever_is_sent_the_answer_is_in_the_document(case, open_ingress):
    if isinstance(case.body, dict) and isinstance(case.body.get("max_tokens"), int):
        case.body["max_tokens"] = min(case.body["max_tokens"], 50)  # the stub would really generate a million
    answer = case.call(base_url=open_ingress.url, timeout=30)
    assert answer.status_code != 500, answer.content
    case.validate_response(
        answer,
        checks=[
            checks.CHECKS.get_by_names(["not_a_server_error"])[0],
            checks.CHECKS.get_by_names(["status_code_conformance"])[0],
            checks.CHECKS.get_by_names(["content_type_conformance"])[0],
            checks.CHECKS.get_by_names(["response_schema_conformance"])[0],
        ],
    )
    open_ingress.idle()
