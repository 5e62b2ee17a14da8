"""Versioned prompt sets, and readers for prompt files that the user brings.

>>> from outrider.load.workloads import load_workload
>>> chat = load_workload("chat", seed=7, count=8)
>>> chat.prompts[0].messages[-1]["role"]
'user'
"""

from outrider.load.workloads.catalogue import is_workload, load_workload, prompt_length, workload_names
from outrider.load.workloads.files import load_prompts_file
from outrider.load.workloads.prompt import Message, Prompt, Workload

__all__ = [
    "Message",
    "Prompt",
    "Workload",
    "is_workload",
    "load_prompts_file",
    "load_workload",
    "prompt_length",
    "workload_names",
]
