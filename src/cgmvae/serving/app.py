"""The application: what can be asked, and how it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cgmvae import __version__
from cgmvae.errors import InputError
from cgmvae.serving import schemas
from cgmvae.serving.answers import Wish, predictions
from cgmvae.serving.batching import Batcher
from cgmvae.serving.boundary import OPEN_PATH, Boundary
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.docs_page import POLICY, render
from cgmvae.serving.limits import read_body, time_limit
from cgmvae.serving.refusals import Refusal, json_response
from cgmvae.serving.rows import read_rows
from cgmvae.serving.served import ServedModel

#: Bytes read, or numbers written, from which the work is done beside the event loop.
_LARGE = 2**15

_SENTENCES = {404: "There is no such page; GET /docs lists what there is."}

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": description}
    for status, description in {
        401: "The API key is missing or wrong.",
        413: "Too many bytes or rows.",
        415: "Neither JSON nor CSV.",
        422: "Something about the request is wrong.",
        503: "Too much to do; try again.",
        504: "It took too long.",
    }.items()
}


def make_app(model: Any, config: ServingConfig | None = None) -> FastAPI:
    """Return an application that answers with a fitted model.

    Parameters
    ----------
    model : estimator
        Fitted, or from :func:`cgmvae.load`; it is not changed.
    config : ServingConfig, optional
        Limits and key.

    Examples
    --------
    >>> from cgmvae import BinaryRelevance, make_survey
    >>> from starlette.testclient import TestClient
    >>> data, _ = make_survey(250, 3, 5, seed=0)
    >>> client = TestClient(make_app(BinaryRelevance(random_state=0).fit(data.X, data)))
    >>> answer = client.post("/predict", json={"rows": data.X[:2].tolist()})
    >>> answer.status_code, len(answer.json()["predictions"])
    (200, 2)
    """
    service = Service(ServedModel(model), config or ServingConfig())
    app = FastAPI(
        title="cgmvae",
        version=__version__,
        description="Which labels a row has, as the model learnt it.",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
    )
    service.add_routes(app)
    for kind, refuse in _HANDLERS.items():
        app.add_exception_handler(kind, refuse)
    app.add_middleware(Boundary, config=service.config)
    if service.config.api_key is not None:
        _describe_key(app.openapi())
    return app


class _Anything(Convertor[str]):
    """The rest of an address: slashes, and line breaks, which Starlette's own leaves out."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class Service:
    """A model with its queue, and what can be asked of it."""

    def __init__(self, model: ServedModel, config: ServingConfig) -> None:
        self.model, self.config = model, config
        self._batcher = Batcher(model.score, config)
        # One thread: parsing is held by the interpreter's lock anyway, and takes memory.
        self._desk = ThreadPoolExecutor(1, "desk")

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Finish what is in the queue before the server ends."""
        yield
        await asyncio.to_thread(self._batcher.close)
        self._desk.shutdown()

    def add_routes(self, app: FastAPI) -> None:
        """Say which address is answered by which function."""
        get: dict[str, Any] = {"methods": ["GET"], "responses": _some_problems(401, 422, 503)}
        app.add_api_route(
            "/predict",
            self.predict,
            methods=["POST"],
            response_model=schemas.Predictions,
            responses=_PROBLEMS,
            openapi_extra=schemas.request_body(self.model, self.config),
        )
        app.add_api_route("/labels", self.labels, response_model=schemas.Labels, **get)
        similar = get | {"responses": _some_problems(401, 404, 422, 503)}
        register_url_convertor("anything", _Anything())
        path = "/similar/{label:anything}"
        app.add_api_route(path, self.similar, response_model=schemas.Similar, **similar)
        app.add_api_route(OPEN_PATH, self.health, response_model=schemas.Health, methods=["GET"])
        app.add_api_route("/docs", self._docs_of(app), methods=["GET"], include_in_schema=False)

    async def predict(
        self,
        request: Request,
        probabilities: Annotated[
            bool, Query(description="Give the probability of every label.")
        ] = False,
        top: Annotated[
            int | None, Query(ge=1, description="Give so many of the likeliest labels.")
        ] = None,
    ) -> Response:
        """Predict the labels of rows.

        Rows are objects by the names of the columns, lists in the model's order, or CSV with a
        header. null, or a blank cell, is a missing value.
        """
        most = self.config.rows_for(len(self.model.label_names))
        async with time_limit(self.config):
            with self._batcher.arriving():
                body = await read_body(request, self.config)
                kind = request.headers.get("content-type", "")
                sent = await self._beside(len(body), read_rows, body, kind, self.model, most)
            scores = await asyncio.wrap_future(self._batcher.submit(sent.features))
            wish = Wish(probabilities, top)
            return await self._beside(scores.size, self._answer, scores, wish, sent.ignored)

    def _answer(self, scores: Any, wish: Wish, ignored: list[str]) -> Response:
        return json_response(
            {
                "predictions": predictions(scores, self.model, wish),
                "thresholds": self.model.threshold_rule(),
                "ignored_columns": ignored,
            }
        )

    async def labels(self) -> Response:
        """List the labels, with the thresholds that they must reach."""
        rule = self.model.threshold_rule()
        return json_response({"labels": self.model.labels(), "thresholds": rule})

    async def similar(
        self,
        label: str,
        k: Annotated[int, Query(ge=1, description="How many labels.")] = 5,
    ) -> Response:
        """List the labels that are most like one, as the model learnt it."""
        return json_response(await self._at_desk(self.model.similar, label, k))

    async def health(self) -> Response:
        """Say whether requests can be sent, and what kind of model answers."""
        return json_response({"ready": True, "model": self.model.describe()})

    def _docs_of(self, app: FastAPI) -> Callable[[], Any]:
        async def docs() -> HTMLResponse:
            policy = {"Content-Security-Policy": POLICY}
            return HTMLResponse(render(app.openapi()), headers=policy)

        return docs

    async def _beside(self, size: int, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do work at once where it is little, and beside the event loop where it is not."""
        if size < _LARGE:
            return work(*arguments)
        return await self._at_desk(work, *arguments)

    async def _at_desk(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._desk, work, *arguments)


def _describe_key(description: dict[str, Any]) -> None:
    """Add the two ways to send the key to the description of the interface."""
    description["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    description["security"] = [{"bearer": []}, {"header": []}]
    description["paths"][OPEN_PATH]["get"]["security"] = []


def _some_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    missing = {"model": schemas.Problem, "description": "There is no such thing."}
    return {status: _PROBLEMS.get(status, missing) for status in statuses}


async def _refuse(_: Request, error: Any) -> Response:
    return error.response()


async def _refuse_input(_: Request, error: Any) -> Response:
    return Refusal(422, str(error)).response()


async def _refuse_query(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    sentence = f"The parameter {first['loc'][-1]!r} cannot be read: {first['msg']}."
    return Refusal(422, sentence).response()


async def _refuse_address(_: Request, error: Any) -> Response:
    sentence = _SENTENCES.get(error.status_code, f"{error.detail}; GET /docs says what there is.")
    return Refusal(error.status_code, sentence, error.headers).response()


_HANDLERS: dict[type[Exception], Any] = {
    Refusal: _refuse,
    InputError: _refuse_input,
    RequestValidationError: _refuse_query,
    HTTPException: _refuse_address,
}
