"""A fitted model behind HTTP, for programs that ask about one row or a few at a time.

``app.make_app`` gives an application that any ASGI server runs; ``server`` runs it with uvicorn. A
request goes through ``boundary`` (key, log, last resort), ``limits`` (how much is read), ``rows``
(what was sent, as the model takes it), ``batching`` (scored with what came at the same time) and
``answers``. All but ``config`` needs the extra ``serve``.

``onnx_file`` writes a model for programs without this library; it needs the extra ``onnx``.
"""
