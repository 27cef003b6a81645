"""The executor service: Engine/Run, Engine/Render and health over a Unix socket, in front of vLLM."""
