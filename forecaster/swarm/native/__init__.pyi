from .library import bfloat16_status as bfloat16_status
from .library import kernel_status as kernel_status
