"""Findings about a drafter against its target."""

from outrider.preflight.catalogue.kind import Kind

_SILENT = "The engine starts, answers stay right, and nothing is logged: only acceptance tells."

DRAFTER = (
    Kind(
        "DRAFT001",
        "error",
        "drafter's architecture unknown to the engine, or of another method",
        "For eagle, eagle3 and dflash the engine puts its prefix before the architecture and looks the result up "
        "among its drafters.",
        "Use the method that the drafter was made for, or an engine version that knows it.",
    ),
    Kind(
        "DRAFT002",
        "error",
        "drafter's config is not usable",
        "A dimension is missing or impossible, or a speculators config lacks a part that the engine demands.",
        "Correct the drafter's config.json from its repository.",
    ),
    Kind(
        "DRAFT003",
        "error",
        "hidden size differs from the target's",
        "The drafter consumes the target's hidden states; another width fails as a shape error or KeyError after "
        "the target has been loaded (vllm 18906).",
        "Use a drafter that was trained for this target.",
    ),
    Kind(
        "DRAFT004",
        "error",
        "auxiliary layer ids are absent",
        "EAGLE-3 heads read hidden states of certain target layers. Where the config does not name them, the engine "
        f"guesses (2, n//2, n-3). {_SILENT} Measured on a head trained on other layers: 1.2 % accepted instead of "
        "58.9 % (vllm 50170).",
        "Write `eagle_aux_hidden_state_layer_ids` into the drafter's config.json: the layers it was trained on, "
        "also when these are the guessed ones. If the repository cannot be changed and its authors say that it was "
        "trained on the guessed layers, run with --accept DRAFT004.",
    ),
    Kind(
        "DRAFT005",
        "error",
        "auxiliary layer ids out of range",
        "Valid ids run from 0 (the embedding's output) to the number of the target's layers (the last layer's "
        "output). Others are never captured, and the drafter receives too few hidden states.",
        "Correct the ids; check that the drafter belongs to this target.",
    ),
    Kind(
        "DRAFT006",
        "error",
        "number of auxiliary layers does not fit the drafter's fc",
        "The joined hidden states and the input of `fc.weight` must have the same width. The engine counts "
        "`num_aux_hidden_states`, else the nested eagle_config ids, else 3; and it drops duplicate ids. A mismatch "
        "ends the engine at its first request, after a start that looked healthy.",
        "State the ids that the drafter was trained on, and `num_aux_hidden_states` if these are not three.",
    ),
    Kind(
        "DRAFT007",
        "error",
        "auxiliary layer ids stand where this model runner does not read them",
        "The V1 runner reads the top level, `dflash_config.target_layer_ids` and "
        "`eagle_config.eagle_aux_hidden_state_layer_ids`; the V2 runner does not read the last. It then guesses. "
        f"{_SILENT}",
        "Write `eagle_aux_hidden_state_layer_ids` at the top level of the drafter's config.json, or force the "
        "V1 runner with VLLM_USE_V2_MODEL_RUNNER=0.",
    ),
    Kind(
        "DRAFT008",
        "error",
        "auxiliary layer ids are not in ascending order",
        "The engine captures layers from the bottom up whatever the order of the ids, so `fc` sees its inputs "
        f"swapped. {_SILENT}",
        "Train and state the ids in ascending order.",
    ),
    Kind(
        "DRAFT009",
        "error",
        "vocabulary size differs from the target's",
        "Token ids pass from target to drafter and back. A smaller embedding is read out of bounds (vllm 43369); "
        "for draft models the engine refuses unequal sizes.",
        "Use a drafter with the target's vocabulary (draft models: or use_heterogeneous_vocab).",
    ),
    Kind(
        "DRAFT010",
        "error",
        "draft vocabulary does not match the drafter's tensors",
        "`draft_vocab_size`, the rows of `lm_head` and the length of `d2t` must be the same number, and `t2d` "
        "must have the target's vocabulary.",
        "Correct `draft_vocab_size`, or export the head again.",
    ),
    Kind(
        "DRAFT011",
        "error",
        "reduced vocabulary without d2t",
        "Without the table the engine takes draft ids for target ids: it proposes the wrong words. " + _SILENT,
        "Export the head with its d2t table.",
    ),
    Kind(
        "DRAFT012",
        "error",
        "d2t leads outside the target's vocabulary",
        "`d2t` holds offsets: the target's id is index + d2t[index]. Ids outside the vocabulary are scattered out of "
        "bounds on the GPU. Tables of plain ids instead of offsets look like this too.",
        "Export the table as offsets (id - index).",
    ),
    Kind(
        "DRAFT013",
        "error",
        "d2t and t2d contradict each other",
        "Tokens that `t2d` marks are not those that `d2t` leads to, or two draft ids lead to one token. " + _SILENT,
        "Export both tables from one vocabulary mapping; d2t as offsets (id - index).",
    ),
    Kind(
        "DRAFT014",
        "error",
        "d2t present although the vocabulary is not reduced",
        "With `draft_vocab_size` equal to the target's vocabulary the engine makes no place for the table and "
        "refuses the unknown tensor.",
        "Remove d2t from the file, or correct `draft_vocab_size`.",
    ),
    Kind(
        "DRAFT015",
        "error",
        "drafter's tensors are missing",
        "The engine does not notice that weights of an EAGLE head are missing: they stay uninitialised. " + _SILENT,
        "Fetch or export the drafter again.",
    ),
    Kind(
        "DRAFT016",
        "error",
        "drafter's tensors have other shapes than its config says",
        "Head counts, head size or widths in the config do not fit the weights. For multi-head latent attention, "
        "head counts inherited from the target's config are a common cause.",
        "Correct the drafter's config.json.",
    ),
    Kind(
        "DRAFT017",
        "error",
        "drafter holds tensors that its class does not have",
        "The engine refuses tensors that it has no parameter for, after the target has been loaded.",
        "Set the flag that the tensor belongs to, or export without it.",
    ),
    Kind(
        "DRAFT018",
        "error",
        "no embedding to use",
        "The drafter has no embedding of its own, and the target's cannot be shared: its width differs, or the "
        "target is split over pipeline stages.",
        "Use a drafter that carries embed_tokens.",
    ),
    Kind(
        "DRAFT019",
        "error",
        "no output head to use",
        "The drafter has no lm_head and a reduced vocabulary. The engine then shares the target's lm_head and takes "
        "its first rows for the reduced vocabulary. " + _SILENT,
        "Export the drafter with its lm_head.",
    ),
    Kind(
        "DRAFT020",
        "advisory",
        "drafter was trained for shorter contexts than are served",
        "The engine raises the drafter's position limit to the served length. Beyond the trained length its "
        "proposals are extrapolations, and acceptance falls.",
        "Measure acceptance at long contexts, or lower `target.max_model_len`.",
    ),
    Kind(
        "DRAFT021",
        "error",
        "drafter shortens the served length",
        "The V2 runner cannot skip speculation for long sequences. Where the drafter's positions cannot be raised "
        "(a draft model, or rotary scaling that depends on the length) it lowers max_model_len to the drafter's.",
        "Lower `target.max_model_len` on purpose, use another drafter, or force the V1 runner.",
    ),
    Kind(
        "DRAFT022",
        "error",
        "rotary settings not usable",
        "The engine does not know the drafter's `rope_type`, or a setting that it needs is absent.",
        "Correct `rope_parameters` (`rope_scaling` in older configs).",
    ),
    Kind(
        "DRAFT023",
        "info",
        "drafter has another dtype than the target",
        "The engine loads a drafter in the target's dtype; its weights are cast.",
        "Nothing, unless acceptance differs from the published one.",
    ),
    Kind(
        "DRAFT024",
        "error",
        "drafter cannot be split as the target is",
        "The drafter's heads are not divisible by its tensor-parallel size. That is 1 or the target's; for "
        "method draft_model it must be the target's.",
        "Set `draft_tensor_parallel_size: 1` in the variant's options where the method allows it.",
    ),
    Kind(
        "DRAFT025",
        "error",
        "drafter's model_type hides that it is MLA",
        "The engine decides by `model_type` whether a drafter's KV cache is that of multi-head latent attention. "
        "A type that is not on its list gets the layout of plain attention, which the MLA layers cannot use.",
        "Set `model_type` in the drafter's config.json to one that the evidence lists (deepseek_v3).",
    ),
    Kind(
        "DRAFT026",
        "error",
        "EAGLE-3.1 flags and tensors disagree",
        "`norm_before_fc` belongs to `input_norm.weight`, `fc_norm` to `fc_norm.N.weight`, attention_bias to "
        "bias tensors. A flag without its tensor normalises with ones; a tensor without its flag is dropped or "
        "refused. " + _SILENT,
        "Set the flags that the head was trained with.",
    ),
    Kind(
        "DRAFT027",
        "error",
        "parallel drafting without its mask",
        "Drafters that propose all tokens at once need a mask: `mask_hidden` (EAGLE) or a mask token id inside the "
        "vocabulary (DFlash, draft models).",
        "Add the mask token id to the drafter's config, or turn parallel_drafting off.",
    ),
    Kind(
        "DRAFT028",
        "error",
        "k is larger than the drafter's block",
        "A block drafter fills `block_size` places; one of them is the anchor unless it samples from the anchor.",
        "Lower `k` to what the evidence names.",
    ),
    Kind(
        "DRAFT029",
        "error",
        "target has no layers for method mtp",
        "The checkpoint declares no multi-token-prediction layer, or holds no tensors of one.",
        "Use another method, or a checkpoint that ships its MTP layers.",
    ),
    Kind(
        "DRAFT030",
        "error",
        "k is no multiple of the MTP layers",
        "Where k exceeds the number of MTP layers the engine reuses them in turns and refuses a remainder.",
        "Choose a multiple of the number of layers.",
    ),
    Kind(
        "DRAFT031",
        "advisory",
        "one MTP layer drafts several tokens",
        "The engine runs the same layer k times; acceptance falls from position to position.",
        "Measure k=1 beside it.",
    ),
    Kind(
        "DRAFT032",
        "error",
        "drafter has another tokenizer than the target",
        "The engine encodes with the target's tokenizer only. A drafter that was trained with other tokens or "
        f"other ids proposes nonsense. {_SILENT}",
        "Use a drafter with the target's tokenizer.",
    ),
    Kind(
        "DRAFT033",
        "advisory",
        "drafter's added tokens differ from the target's",
        "The vocabulary is the same, but added tokens have other ids. Text is drafted well, special tokens are not.",
        "Compare the two lists of added tokens; acceptance around them will be low.",
    ),
    Kind(
        "DRAFT034",
        "advisory",
        "drafter was made for another target",
        "`speculators_config.verifier` names another model than the stack's target.",
        "Measure acceptance; use the drafter of this target if there is one.",
    ),
    Kind(
        "DRAFT035",
        "advisory",
        "drafter is not pinned to a commit",
        "Without `revision` the repository's newest files are served, and measured acceptance is not repeatable.",
        "Set `drafter.revision` to a commit.",
    ),
    Kind(
        "DRAFT036",
        "error",
        "target cannot hand out hidden states",
        "Methods eagle3, dflash and dspark need a target class with the engine's EAGLE-3 interface.",
        "Use method eagle, mtp, draft_model or ngram, or an engine version whose class has the interface.",
    ),
    Kind(
        "DRAFT037",
        "error",
        "mixed sliding and full attention needs the V2 runner",
        "DFlash drafters with both kinds of layers need several KV groups, which only the V2 runner has.",
        "Set VLLM_USE_V2_MODEL_RUNNER=1, for all variants alike.",
    ),
    Kind(
        "DRAFT038",
        "error",
        "drafter's quantisation not readable by the engine",
        "The drafter's `quantization_config` names no method of the pinned engine.",
        "Use unquantised drafter weights.",
    ),
    Kind(
        "DRAFT039",
        "error",
        "positions run past the drafter's rotary table",
        "Before 0.33 the engine resizes the rotary tables of EAGLE heads only. Other drafters that were made for a "
        "shorter context than is served are read out of bounds (vllm 57941).",
        "Lower `target.max_model_len` to the drafter's, or pin engine version 0.33.0 or newer.",
    ),
)
