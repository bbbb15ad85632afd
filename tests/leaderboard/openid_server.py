"""A provider for tests of the sign-in: an OpenID server, and a server like GitHub's, in a thread of this process."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
OTHER_KEY = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
CLIENT, SECRET = "board", "board-secret"


@dataclass
class Server:
    """What the provider knows and does.

    Attributes:
        subject: who signs in.
        claims: changes of the ID token; None removes a claim.
        sign: signs the claims; by default with the key that the server publishes.
        metadata: changes of the document of the discovery.
        codes: the requests of browsers, by the code that they got; a code is used once.
        broken: whether all answers are errors.
    """

    url: str = ""
    subject: str = "0000-0002-1825-0097"
    github: dict[str, Any] = field(default_factory=lambda: {"id": 42, "login": "octo-cat"})
    claims: dict[str, Any] = field(default_factory=dict)
    sign: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    broken: bool = False

    def visit(self, address: str) -> str:
        """Act as the browser of a person who agrees; return the address to which the provider sends it back."""
        assert address.startswith(f"{self.url}/authorize?"), address
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (query["response_type"], query["client_id"], query["code_challenge_method"]) == ("code", CLIENT, "S256")
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?code={code}&state={query['state']}"

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        request = self.codes.pop(form.get("code", ""), None)
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            request is None
            or authorization != basic
            or form.get("redirect_uri") != request["redirect_uri"]
            or challenge.decode().rstrip("=") != request["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        times = {"iat": now, "exp": now + 600}
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": self.subject,
            "nonce": request.get("nonce"),
            **times,
        } | self.claims
        claims = {name: value for name, value in claims.items() if value is not None}
        sign = self.sign or (lambda claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEY))
        return 200, {"access_token": "access", "token_type": "Bearer", "id_token": sign(claims)}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        if self.broken:
            return 500, {}
        match path:
            case "/.well-known/openid-configuration":
                ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
                return 200, {"issuer": self.url, **{k: f"{self.url}/{v}" for k, v in ends.items()}} | self.metadata
            case "/keys":
                return 200, {"keys": [KEY.as_dict(private=False)]}
            case "/token":
                return self.exchange(form, authorization)
            case "/user":
                return (200, self.github) if authorization == "Bearer access" else (401, {})
        return 404, {}


@contextmanager
def serving() -> Iterator[Server]:
    """Start a provider."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.respond({name: values[0] for name, values in parse_qs(body).items()})

        def respond(self, form: dict[str, str]) -> None:
            status, value = server.answer(urlsplit(self.path).path, form, self.headers.get("Authorization", ""))
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def _written(header: dict[str, str], claims: dict[str, Any]) -> str:
    parts = [json.dumps(part).encode() for part in (header, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def unsigned(claims: dict[str, Any]) -> str:
    """Return a token without a signature (``alg: none``)."""
    return _written({"alg": "none"}, claims) + "."


def signed_by_another(claims: dict[str, Any]) -> str:
    """Return a token of another server's key with the same id."""
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, OTHER_KEY)


def signed_with_the_public_key(claims: dict[str, Any]) -> str:
    """Return a token that is signed with the published key as if it were a shared secret."""
    text = _written({"alg": "HS256", "kid": "one"}, claims)
    signature = hmac.new(KEY.as_pem(private=False), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
