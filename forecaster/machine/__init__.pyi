from .available import free_memory as free_memory
from .available import release_memory as release_memory
from .processes import check_guarded as check_guarded
from .processes import cores as cores
from .processes import end_with_parent as end_with_parent
from .threads import by_parts as by_parts
