"""Reading: configs, tokenizer files and safetensors headers, from a directory or by ranged HTTP requests."""

from outrider.preflight.reading.checkpoint import Checkpoint, Fault, read_checkpoint
from outrider.preflight.reading.files import Files, LocalFiles
from outrider.preflight.reading.headers import Header, HeaderError, TensorInfo, parse_header, read_header
from outrider.preflight.reading.remote import RemoteFiles
from outrider.preflight.reading.tokenizer import TokenizerFacts

__all__ = [
    "Checkpoint",
    "Fault",
    "Files",
    "Header",
    "HeaderError",
    "LocalFiles",
    "RemoteFiles",
    "TensorInfo",
    "TokenizerFacts",
    "parse_header",
    "read_checkpoint",
    "read_header",
]
