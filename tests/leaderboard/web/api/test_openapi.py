"""The OpenAPI document of the API."""

from __future__ import annotations

import json


def test_the_openapi_document_has_all_operations_and_error_responses(client):
    document = client.get("/api/v1/openapi.json").json()
    assert {"/api/v1/health", "/api/v1/submissions", "/api/v1/boards/{env_id}/{rules_version}"} <= set(
        document["paths"]
    )
    assert not any(path.startswith(("/docs", "/redoc", "/login")) for path in document["paths"])
    assert client.get("/docs").status_code == 404
    for operations in document["paths"].values():
        for operation in operations.values():
            assert {"400", "401", "422", "429", "503"} <= set(operation["responses"])
    assert "HTTPValidationError" not in json.dumps(document)


def test_the_openapi_document_describes_the_dataclasses_of_the_board(client):
    schemas = client.get("/api/v1/openapi.json").json()["components"]["schemas"]
    assert {"Account", "Happened", "Sent", "Standing", "Submission", "Token"} <= set(schemas)
    assert schemas["Standing"]["properties"]["comp"]["description"] == "FLOPs of the whole stream."
    assert schemas["Submission"]["properties"]["runs"]["maxItems"] == 20
    assert "contact" not in schemas["Manifest"]["properties"]
    assert schemas["Finding"]["required"] == ["severity", "code", "text", "seed"]
    assert not any("Attributes:" in schema["description"] for schema in schemas.values())
