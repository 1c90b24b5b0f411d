"""HTTP server for a fitted model, and export of a model to ONNX.

``app.make_app`` returns an application that any ASGI server runs; ``server`` runs it with uvicorn.
A request passes through ``middleware`` (API key, limits, log), is parsed by ``model``, scored
together with concurrent requests by ``batching``, and answered with one of the schemas of
``responses``. All modules but ``config`` need the extra ``serve``.

``onnx_export`` writes a model for programs without this library; it needs the extra ``onnx``.
"""
