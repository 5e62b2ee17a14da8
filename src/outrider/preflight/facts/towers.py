"""Names of the parts of a multimodal checkpoint that are not the text model."""

import re

# Towers that turn images or sound into embeddings, and what projects these.
VISION = re.compile(r"(^|\.)(vision_tower|vision_model|visual|mm_projector|multi_modal_projector|audio_tower)\.")
