"""The application: its routes, and how a request is read, scored and answered."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import FastAPI, Query, Security
from fastapi.exceptions import RequestValidationError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cgmvae import __version__
from cgmvae.errors import InputError
from cgmvae.serving import responses
from cgmvae.serving.batching import Batcher
from cgmvae.serving.config import ServingConfig
from cgmvae.serving.metrics import Metrics
from cgmvae.serving.middleware import BEARER, KEY_HEADER, ServingMiddleware, logger
from cgmvae.serving.model import Parsed, ServedModel, n_bytes
from cgmvae.serving.responses import AsciiJSONResponse, RequestError

#: From this many bytes read or numbers written on, work leaves the event loop for a thread.
_LARGE = 2**15

#: Status of a client that disconnected; it is only seen in the log.
_CLIENT_DISCONNECTED = 499

#: Sent with a response to a request that was not read to its end, so that nobody has to.
_CLOSE = {"Connection": "close"}

_ERRORS = {
    401: "The API key is missing or wrong.",
    404: "There is no such label, or the method learns no similarity.",
    413: "Too many bytes or rows.",
    415: "Neither JSON nor CSV.",
    422: "The request is invalid.",
    503: "The server is overloaded; try again.",
    504: "The request took too long.",
}


def make_app(
    model: Any, config: ServingConfig | None = None, load: Callable[[], Any] | None = None
) -> FastAPI:
    """Return an application that serves a model, fitted or from :func:`cgmvae.load`.

    The model is not changed. The configuration holds limits and API key. On the signal SIGHUP,
    where there is one, the application serves the model that ``load`` returns.

    Examples
    --------
    >>> from cgmvae import BinaryRelevance, make_survey
    >>> from starlette.testclient import TestClient
    >>> data, _ = make_survey(250, 3, 5, seed=0)
    >>> client = TestClient(make_app(BinaryRelevance(random_state=0).fit(data.X, data)))
    >>> response = client.post("/predict", json={"rows": data.X[:2].tolist()})
    >>> response.status_code, len(response.json()["predictions"])
    (200, 2)
    """
    service = Service(ServedModel(model), config or ServingConfig(), load)
    app = FastAPI(
        title="cgmvae",
        version=__version__,
        description="Predicts the labels of rows with a fitted model.",
        lifespan=service.lifespan,
        docs_url=None,  # its page loads scripts from another site
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to whatever host the request names
    )
    app.state.draining, app.state.metrics, app.state.reload = False, service.metrics, service.reload
    service.add_routes(app)
    for kind in (RequestError, InputError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle_error)
    app.add_middleware(ServingMiddleware, config=service.config)
    return app


class _AnyPath(PathConvertor):
    """The rest of a path, with slashes and with line breaks, which Starlette's own leaves out."""

    regex = "(?s:.*)"


class Service:
    """A model with its batcher, and a method per route.

    The methods return responses, which FastAPI passes on without validation: validating every
    probability would take longer than scoring, and pydantic rejects names with lone surrogates.
    """

    def __init__(
        self, model: ServedModel, config: ServingConfig, load: Callable[[], Any] | None = None
    ) -> None:
        self.model, self.config, self._load = model, config, load
        self.metrics = Metrics()
        self._batcher = Batcher(config, self.metrics.batch_rows.observe)
        # The OpenAPI description of the model's columns; replaced with the model.
        self._request_schema: dict[str, Any] = {}
        # One thread: parsing holds the interpreter lock anyway, and takes memory.
        self._worker = ThreadPoolExecutor(1, "parsing")

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Load the model again on SIGHUP; score everything in the queue before the server ends."""
        if self._load is not None and hasattr(signal, "SIGHUP"):
            loop = asyncio.get_running_loop()
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
                loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, self.reload, app)
        yield
        await self._batcher.close()
        self._worker.shutdown()

    def reload(self, app: FastAPI) -> None:
        """Serve the model that is loaded now; keep the current one if that fails.

        Requests in progress end with the model that they began with.
        """
        assert self._load is not None
        try:
            self._use(ServedModel(self._load()))
        except InputError as error:
            logger.error("The model was not loaded again: %s", error)
            return
        app.openapi_schema = None
        logger.warning("The model was loaded again.")

    def _use(self, model: ServedModel) -> None:
        self.model = model
        self._request_schema |= model.request_schema(self.config.rows_for(len(model.label_names)))

    def add_routes(self, app: FastAPI) -> None:
        """Register all routes."""
        register_url_convertor("anything", _AnyPath())
        # The middleware checks the key; here it is only described.
        schemes = [] if self.config.api_key is None else [Security(BEARER), Security(KEY_HEADER)]

        def add(path: str, endpoint: Any, schema: Any, *errors: int, **options: Any) -> None:
            described: dict[int | str, Any] = {
                status: {"model": responses.ErrorMessage, "description": _ERRORS[status]}
                for status in errors
            }
            app.add_api_route(path, endpoint, response_model=schema, responses=described, **options)

        keyed: dict[str, Any] = {"dependencies": schemes}
        self._use(self.model)
        body = {"methods": ["POST"], "openapi_extra": self._request_schema}
        errors: tuple[int, ...] = (401, 413, 415, 422, 503, 504)
        add("/predict", self.predict, responses.Predictions, *errors, **keyed, **body)
        add("/labels", self.labels, responses.Labels, 401, 422, 503, **keyed)
        errors = (401, 404, 422, 503)
        add("/similar/{label:anything}", self.similar, responses.Similar, *errors, **keyed)
        add("/health", self.health, responses.Health)
        add("/live", self.live, responses.Live)
        add("/ready", self.ready, responses.Ready, 503)
        app.add_api_route("/metrics", self.render_metrics, include_in_schema=False)

    async def predict(
        self,
        request: Request,
        probabilities: Annotated[
            bool, Query(description="Include the probability of every label.")
        ] = False,
        top: Annotated[
            int | None, Query(ge=1, description="Include this many of the most probable labels.")
        ] = None,
    ) -> Response:
        """Predict the labels of rows.

        Rows are objects by column name, lists in the model's order, or CSV with a header. null, or
        an empty cell, is a missing value. "known", beside the rows, says for each of them which
        labels are known: {"owl": 1, "hawk": 0}, or names of labels that are present.
        """
        model = self.model
        max_rows = self.config.rows_for(len(model.label_names))

        def respond() -> Response:
            given = model.given_known(scores, sent.known)
            found = model.predictions(given, probabilities=probabilities, top=top)
            rule = model.thresholds()
            return AsciiJSONResponse(
                {"predictions": found, "thresholds": rule, "ignored_columns": sent.ignored}
            )

        try:
            async with asyncio.timeout(self.config.seconds):
                with self._batcher.arriving():
                    body = await _read_body(request, self.config)
                    content = (body, request.headers.get("content-type", ""))
                    sent = await self._run(len(body), _parse, model, *content, max_rows)
                    request.scope["hold"](max(0, n_bytes(sent) - len(body)))
                scores = await self._batcher.submit(sent.features, model.score)
                return await self._run(scores.size, respond)
        except TimeoutError as error:
            raise RequestError(
                504,
                f"The request took more than {self.config.seconds:g} seconds; send fewer rows, or "
                "try again later.",
                _CLOSE,
            ) from error

    async def labels(self) -> Response:
        """List the labels and their thresholds."""
        model = self.model
        return AsciiJSONResponse({"labels": model.labels(), "thresholds": model.thresholds()})

    async def similar(
        self,
        label: str,
        k: Annotated[int, Query(ge=1, description="Number of labels.")] = 5,
    ) -> Response:
        """List the labels that the model has learned to be most similar to one."""
        return AsciiJSONResponse(await self._run(_LARGE, self.model.similar, label, k))

    async def health(self, request: Request) -> Response:
        """Return whether the server is ready, and which model it serves."""
        served = self.model
        model = {
            "method": served.method,
            "n_columns": served.n_columns,
            "n_labels": len(served.label_names),
            "library": __version__,
        }
        return AsciiJSONResponse({"ready": not request.app.state.draining, "model": model})

    async def live(self) -> Response:
        """Return that the process runs; if there is no response, restart it."""
        return AsciiJSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        """Return whether to send requests: with status 503, the server is stopping."""
        if request.app.state.draining:
            raise RequestError(503, "The server is stopping; send requests to another one.")
        return AsciiJSONResponse({"ready": True})

    async def render_metrics(self) -> Response:
        """Return the metrics of the server for Prometheus."""
        return Response(self.metrics.render(), media_type="text/plain; version=0.0.4")

    async def _run(self, size: int, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do a small amount of work at once, and a large one in a thread."""
        if size < _LARGE:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)


def _parse(model: ServedModel, *content: Any) -> Parsed:
    try:
        return model.parse(*content)
    except (RequestError, InputError) as error:
        # Its traceback would keep all that was parsed in memory until it is collected.
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None) from None


async def _read_body(request: Request, config: ServingConfig) -> bytes:
    """Read the body of a request, and stop as soon as it exceeds the limit.

    An announced length only serves to reject at once; the limit holds for what is received.
    """
    message = f"The body has more than {config.body_bytes:,} bytes; send several requests."
    too_large = RequestError(413, message, _CLOSE)
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > config.body_bytes:
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > config.body_bytes:
                raise too_large
            parts.append(part)
    except ClientDisconnect as error:
        raise RequestError(_CLIENT_DISCONNECTED, "The client disconnected.") from error
    return b"".join(parts)


async def _handle_error(_: Request, error: Any) -> Response:
    """Return the response to an exception: its message in JSON."""
    if isinstance(error, InputError):
        error = RequestError(422, str(error))
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        message = f"The parameter {first['loc'][-1]!r} is invalid: {first['msg']}."
        error = RequestError(422, message)
    elif isinstance(error, HTTPException):
        message = f"{error.detail}; GET /openapi.json lists the available paths."
        error = RequestError(error.status_code, message, error.headers)
    return error.response()
