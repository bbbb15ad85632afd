"""The providers with which people sign in: GitHub (OAuth 2.0) and OpenID providers, such as ORCID.

The flow is the authorization code with PKCE. `begin` gives the address to which the browser goes; `finish` exchanges
the code that comes back for the person. State, nonce and the secret of PKCE come from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from leaderboard.accounts.identities import Person

SECONDS = 8.0  # for an answer of a provider
_LEEWAY_SECONDS = 60  # between clocks
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")  # with a public key
_LONGEST = 255  # characters of a subject


class SignInError(RuntimeError):
    """The provider did not say who the person is."""


@dataclass(frozen=True)
class Provider:
    """A provider, and the board's registration there.

    Attributes:
        id: in URLs and in the database.
        label: for people.
        client_id: id of the board at the provider.
        client_secret: secret of the board at the provider.
        issuer: address of an OpenID provider, whose endpoints are discovered; empty for GitHub.
        authorize_url: where the browser goes; empty if it is discovered.
        token_url: where the code is exchanged; empty if it is discovered.
        user_url: the person as JSON; empty for an OpenID provider, which sends an ID token.
        scope: what the board asks for: only who the person is.
    """

    id: str
    label: str
    client_id: str
    client_secret: str = field(repr=False)
    issuer: str = ""
    authorize_url: str = ""
    token_url: str = ""
    user_url: str = ""
    scope: str = ""

    @property
    def origin(self) -> str:
        """Where the browser goes, for the Content-Security-Policy of the form."""
        parts = urlsplit(self.issuer or self.authorize_url)
        return f"{parts.scheme}://{parts.netloc}"


def github(client_id: str, client_secret: str) -> Provider:
    """Return GitHub, which has no ID tokens: the person comes from its API."""
    return Provider(
        *("github", "GitHub", client_id, client_secret),
        authorize_url="https://github.com/login/oauth/authorize",
        token_url="https://github.com/login/oauth/access_token",
        user_url="https://api.github.com/user",
    )


def orcid(client_id: str, client_secret: str) -> Provider:
    """Return ORCID, an OpenID provider."""
    return Provider("orcid", "ORCID", client_id, client_secret, issuer="https://orcid.org", scope="openid")


def configured(variables: Mapping[str, str]) -> tuple[Provider, ...]:
    """Return the providers whose ids are set, such as ``ALMA_LEADERBOARD_GITHUB_ID`` and ``..._SECRET``.

    Raises:
        ValueError: only one of id and secret is set.
    """
    found = []
    for make in (github, orcid):
        name = f"ALMA_LEADERBOARD_{make.__name__.upper()}"
        values = variables.get(f"{name}_ID", ""), variables.get(f"{name}_SECRET", "")
        if all(values):
            found.append(make(*values))
        elif any(values):
            raise ValueError(f"{name}_ID and {name}_SECRET: one is missing; set both, or none")
    return tuple(found)


def begin(provider: Provider, back: str, *, state: str, nonce: str, verifier: str) -> str:
    """Return the address to which the browser goes. The provider sends it back to ``back``.

    Raises:
        SignInError: the provider does not answer.
    """
    try:
        with _client(provider, back) as client:
            url = provider.authorize_url or _endpoint(provider, _metadata(client, provider), "authorization_endpoint")
            more = {"nonce": nonce} if provider.issuer else {}
            address, _ = client.create_authorization_url(url, state=state, code_verifier=verifier, **more)
            return str(address)
    except _ERRORS as error:
        raise _failed(provider, error) from error


def finish(provider: Provider, back: str, *, code: str, nonce: str, verifier: str) -> Person:
    """Exchange a code for the person.

    Raises:
        SignInError: the provider does not answer, or its answer does not prove who the person is.
    """
    try:
        with _client(provider, back) as client:
            metadata = _metadata(client, provider) if provider.issuer else {}
            url = provider.token_url or _endpoint(provider, metadata, "token_endpoint")
            token = client.fetch_token(url, code=code, code_verifier=verifier, grant_type="authorization_code")
            if not provider.issuer:
                answer = client.get(provider.user_url, headers={"Accept": "application/json"})
                return _person_of_github(provider, answer.raise_for_status().json())
            keys = _public(client, _endpoint(provider, metadata, "jwks_uri"))
            return _person_of_token(provider, token, keys, nonce)
    except _ERRORS as error:
        raise _failed(provider, error) from error


_ERRORS = (AuthlibBaseError, JoseError, httpx2.HTTPError, httpx2.InvalidURL, ValueError, TypeError, LookupError)


def _failed(provider: Provider, error: BaseException) -> SignInError:
    return SignInError(f"{provider.label}: the sign-in failed ({type(error).__name__}); try again, or use a token")


def _client(provider: Provider, back: str) -> OAuth2Client:
    return OAuth2Client(
        provider.client_id,
        provider.client_secret,
        scope=provider.scope or None,
        redirect_uri=back,
        code_challenge_method="S256",
        timeout=SECONDS,
        follow_redirects=False,
        trust_env=False,
    )


def _public(client: OAuth2Client, url: str) -> Any:
    return client.request("GET", url, withhold_token=True).raise_for_status().json()


def _metadata(client: OAuth2Client, provider: Provider) -> dict[str, Any]:
    url = provider.issuer.rstrip("/") + "/.well-known/openid-configuration"
    found = _public(client, url)
    if found["issuer"] != provider.issuer:  # else another provider could speak for this one
        raise ValueError("the issuer is another one")
    return dict(found)


def _endpoint(provider: Provider, metadata: Mapping[str, Any], name: str) -> str:
    url = str(metadata[name])
    if urlsplit(url).scheme != urlsplit(provider.issuer).scheme:
        raise ValueError(f"{name} is not as safe as the issuer")
    return url


def _person_of_github(provider: Provider, user: Mapping[str, Any]) -> Person:
    number, name = user["id"], user["login"]
    if type(number) is not int or not isinstance(name, str) or not name:
        raise ValueError("no person")
    return Person(provider.id, str(number), name)


def _person_of_token(provider: Provider, token: Mapping[str, Any], keys: Any, nonce: str) -> Person:
    decoded = jwt.decode(token["id_token"], KeySet.import_key_set(keys), algorithms=_ALGORITHMS)
    expected = {
        "iss": {"essential": True, "value": provider.issuer},
        "aud": {"essential": True, "value": provider.client_id},
    }
    params = {"nonce": nonce, "client_id": provider.client_id, "access_token": token.get("access_token")}
    claims = CodeIDToken(decoded.claims, decoded.header, expected, params)
    claims.validate(leeway=_LEEWAY_SECONDS)
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST or not subject.isprintable():
        raise ValueError("no subject")
    return Person(provider.id, subject, subject)
