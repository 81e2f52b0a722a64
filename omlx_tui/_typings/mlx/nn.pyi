from typing import Any

import mlx.core as mx

class Module:
    def parameters(self) -> dict[str, Any]: ...
    def set_dtype(self, dtype: mx.Dtype) -> None: ...
