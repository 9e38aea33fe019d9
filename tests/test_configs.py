"""Shapes read from config.json: published counts to the last digit, the catalogue's rows, and refusals."""

import json
from dataclasses import fields

import pytest

from javascript import run
from onegpu.calculator import COUNTS
from onegpu.catalog import MODELS, Transformer
from onegpu.configs import FAMILIES, read_config


def shape(source):
    """The model of a config."""
    return Transformer.from_config(source)


def config(model_type, keys, *values):
    """A config: its type, the names of its keys in one text, their values."""
    return {"model_type": model_type} | dict(zip(keys.split(), values, strict=True))


LLAMA = "num_hidden_layers hidden_size num_attention_heads num_key_value_heads intermediate_size vocab_size"
TIED = LLAMA + " tie_word_embeddings"
HEAD = LLAMA + " head_dim"
LATENT = (LLAMA + " moe_intermediate_size n_routed_experts num_experts_per_tok n_shared_experts first_k_dense_replace moe_layer_freq"
          " q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim attention_bias tie_word_embeddings")
OPT = "num_hidden_layers hidden_size num_attention_heads ffn_dim vocab_size max_position_embeddings word_embed_proj_dim do_layer_norm_before"
FALCON = "num_hidden_layers hidden_size num_attention_heads vocab_size multi_query parallel_attn bias new_decoder_architecture tie_word_embeddings"
HUB = "https://huggingface.co/"

# config, exact count, row of the catalogue (if it has one), address. All counts agree with the modules that transformers 4.57.6 builds from
# these configs; the page of opt-1.3b prints no count, 1315758080 stands in public training code.
PUBLISHED = {
    "gpt2": (config("gpt2", "n_layer n_embd n_head n_positions n_ctx vocab_size", 12, 768, 12, 1024, 1024, 50257),
             124439808, "GPT-2 small", HUB + "openai-community/gpt2"),
    "gpt2-xl": (config("gpt2", "n_layer n_embd n_head n_positions n_inner vocab_size", 48, 1600, 25, 1024, None, 50257),
                1557611200, "GPT-2 XL", HUB + "openai-community/gpt2-xl"),
    "Llama-2-7b": (config("llama", TIED, 32, 4096, 32, 32, 11008, 32000, False), 6738415616, "Llama 2 7B", HUB + "meta-llama/Llama-2-7b-hf"),
    "Llama-3.1-8B": (config("llama", TIED + " attention_bias mlp_bias", 32, 4096, 32, 8, 14336, 128256, False, False, False),
                     8030261248, "Llama 3 8B", HUB + "meta-llama/Llama-3.1-8B"),
    "Llama-3.1-70B": (config("llama", TIED, 80, 8192, 64, 8, 28672, 128256, False), 70553706496, "Llama 3 70B", HUB + "meta-llama/Llama-3.1-70B"),
    "Llama-3.2-1B": (config("llama", TIED + " head_dim", 16, 2048, 32, 8, 8192, 128256, True, 64),
                     1235814400, "Llama 3.2 1B", HUB + "meta-llama/Llama-3.2-1B"),
    "Mistral-7B": (config("mistral", TIED, 32, 4096, 32, 8, 14336, 32000, False), 7241732096, "Mistral 7B", HUB + "mistralai/Mistral-7B-v0.1"),
    "Qwen2.5-7B": (config("qwen2", TIED, 28, 3584, 28, 4, 18944, 152064, False), 7615616512, "Qwen2.5 7B", HUB + "Qwen/Qwen2.5-7B"),
    "Qwen2.5-0.5B": (config("qwen2", TIED, 24, 896, 14, 2, 4864, 151936, True), 494032768, "Qwen2.5 0.5B", HUB + "Qwen/Qwen2.5-0.5B"),
    "Qwen3-8B": (config("qwen3", TIED + " head_dim attention_bias", 36, 4096, 32, 8, 12288, 151936, False, 128, False),
                 8190735360, "Qwen3 8B", HUB + "Qwen/Qwen3-8B"),
    "Qwen3-0.6B": (config("qwen3", TIED + " head_dim attention_bias", 28, 1024, 16, 8, 3072, 151936, True, 128, False),
                   596049920, "Qwen3 0.6B", "https://github.com/keras-team/keras-hub/blob/master/keras_hub/src/models/qwen3/qwen3_presets.py"),
    "gpt-neox-20b": (config("gpt_neox", "num_hidden_layers hidden_size num_attention_heads intermediate_size vocab_size tie_word_embeddings",
                            44, 6144, 64, 24576, 50432, False), 20554567680, "GPT-NeoX-20B", HUB + "EleutherAI/gpt-neox-20b"),
    "gemma-2b": (config("gemma", HEAD, 18, 2048, 8, 1, 16384, 256000, 256), 2506172416, "Gemma 2B", HUB + "google/gemma-2b"),
    "gemma-2-9b": (config("gemma2", HEAD, 42, 3584, 16, 8, 14336, 256000, 256), 9241705984, "Gemma 2 9B", HUB + "google/gemma-2-9b"),
    "OLMo-2-7B": (config("olmo2", TIED + " attention_bias", 32, 4096, 32, 32, 11008, 100352, False, False),
                  7298617344, None, HUB + "allenai/OLMo-2-1124-7B"),
    "OLMo-2-13B": (config("olmo2", TIED, 40, 5120, 40, 40, 13824, 100352, False), 13716198400, None, HUB + "allenai/OLMo-2-1124-13B"),
    "Mixtral-8x7B": (config("mixtral", TIED + " num_local_experts num_experts_per_tok", 32, 4096, 32, 8, 14336, 32000, False, 8, 2),
                     46702792704, "Mixtral 8x7B", HUB + "mistralai/Mixtral-8x7B-v0.1"),
    "DeepSeek-V2-Lite": (config("deepseek_v2", LATENT, 27, 2048, 16, 16, 10944, 102400, 1408, 64, 6, 2, 1, 1, None, 512, 128, 64, 128, False, False),
                         15706484224, None, HUB + "deepseek-ai/DeepSeek-V2-Lite"),
    "DeepSeek-V3": (config("deepseek_v3", LATENT + " num_nextn_predict_layers",
                           61, 7168, 128, 128, 18432, 129280, 2048, 256, 8, 1, 3, 1, 1536, 512, 128, 64, 128, False, False, 1),
                    671026419200, "DeepSeek-V3", "https://github.com/deepseek-ai/DeepSeek-V3"),
    "bloom": (config("bloom", "n_layer n_embed num_attention_heads n_inner vocab_size", 70, 14336, 112, None, 250880),
              176247271424, "BLOOM 176B", HUB + "bigscience/bloom"),
    "opt-1.3b": (config("opt", OPT, 24, 2048, 32, 8192, 50272, 2048, 2048, True), 1315758080, None, HUB + "facebook/opt-1.3b"),
    "Phi-3-mini": (config("phi3", TIED, 32, 3072, 32, 32, 8192, 32064, False), 3821079552, "Phi-3 mini", HUB + "microsoft/Phi-3-mini-4k-instruct"),
    "falcon-7b": (config("falcon", FALCON, 32, 4544, 71, 65024, True, True, False, False, False), 7217189760, "Falcon 7B", HUB + "tiiuae/falcon-7b"),
    "falcon-40b": (config("falcon", FALCON + " num_kv_heads", 60, 8192, 128, 65024, True, True, False, True, False, 8),
                   41835970560, "Falcon 40B", HUB + "tiiuae/falcon-40b"),
}


@pytest.mark.parametrize("found, count, row, url", PUBLISHED.values(), ids=PUBLISHED)
def test_published_counts(found, count, row, url):
    """A config gives the count on its page, and every field of the catalogue's row."""
    assert url.startswith("https://") and shape(found).n_params == count
    for field in fields(Transformer) if row else ():
        assert field.name == "name" or getattr(shape(found), field.name) == getattr(MODELS[row], field.name), field.name


def test_every_family_has_a_published_count():
    assert {found["model_type"] for found, *_ in PUBLISHED.values()} == set(FAMILIES)


def test_a_file_is_read_like_a_dictionary(tmp_path):
    """A path or its text; with a byte order mark; keys that no field needs."""
    found = PUBLISHED["Llama-3.1-8B"][0] | {"architectures": ["LlamaForCausalLM"], "rope_scaling": {"factor": 8.0}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(found), encoding="utf-8-sig")
    assert read_config(file) == read_config(str(file)) == read_config(found) and found["model_type"] == "llama"


def test_names():
    """The config's own name, else its family."""
    found = PUBLISHED["gpt2"][0]
    assert shape(found).name == "gpt2" and shape(found | {"_name_or_path": "openai/gpt2"}).name == "openai/gpt2"
    assert shape(found | {"_name_or_path": ""}).name == "gpt2"


@pytest.mark.parametrize("name, key, field, value", [
    ("Llama-2-7b", "num_key_value_heads", "n_kv_heads", 32), ("Llama-2-7b", "tie_word_embeddings", "tied_embeddings", False),
    ("Mistral-7B", "num_key_value_heads", "n_kv_heads", 8), ("Qwen3-0.6B", "head_dim", "d_head", 128), ("gemma-2b", "head_dim", "d_head", 256),
    ("Mixtral-8x7B", "num_local_experts", "n_experts", 8), ("opt-1.3b", "word_embed_proj_dim", "d_model", 2048),
    ("falcon-7b", "tie_word_embeddings", "tied_embeddings", True), ("falcon-7b", "multi_query", "n_kv_heads", 1),
])
def test_defaults_of_absent_keys(name, key, field, value):
    """Hugging Face's classes fill in what a config leaves out."""
    assert getattr(shape({k: v for k, v in PUBLISHED[name][0].items() if k != key}), field) == value


def test_null_is_not_absent():
    """Without key-value heads a Mistral has eight, with null as many as query heads."""
    mistral = PUBLISHED["Mistral-7B"][0]
    assert shape(mistral | {"num_key_value_heads": None}).n_kv_heads == 32
    assert shape(mistral | {"head_dim": None}).d_head == 128
    assert shape(PUBLISHED["DeepSeek-V3"][0] | {"n_shared_experts": None}).n_shared_experts == 0


def test_switches():
    """Biases, tied tables and norms follow the config."""
    llama, falcon, opt = (PUBLISHED[n][0] for n in ("Llama-2-7b", "falcon-7b", "opt-1.3b"))
    biased = shape(llama | {"attention_bias": True, "mlp_bias": True})
    assert biased.n_params - 6738415616 == 32 * (4 * 4096 + 2 * 11008 + 4096)
    assert 7217189760 - shape(falcon | {"tie_word_embeddings": True}).n_params == 65024 * 4544
    assert (shape(falcon).n_norms, shape(falcon | {"parallel_attn": False}).n_norms) == (1, 2)
    assert shape(PUBLISHED["falcon-40b"][0] | {"num_ln_in_parallel_attn": 1}).n_norms == 1
    assert shape(falcon | {"multi_query": False}).n_kv_heads == 71
    plain = shape(opt | {"enable_bias": False})
    assert 1315758080 - plain.n_params == 24 * (4 * 2048 + 8192 + 2048)
    assert shape(PUBLISHED["OLMo-2-7B"][0] | {"num_attention_heads": 40, "num_key_value_heads": 8, "hidden_size": 5120}).qk_norm == 24


@pytest.mark.parametrize("text", ['{"model_type": "llama", "hidden_si', "", "[]", "null", "7", '"llama"', b"\xff\xfe\x00", "[" * 100000])
def test_a_file_that_is_not_a_json_object(tmp_path, text):
    file = tmp_path / "config.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match="^config = config.json: must be a JSON object$"):
        read_config(file)


def test_other_sources(tmp_path):
    """A list is no config; a file that is not there is the system's error."""
    with pytest.raises(ValueError, match="^config = list: must be a JSON object$"):
        read_config([PUBLISHED["gpt2"][0]])
    with pytest.raises(FileNotFoundError):
        read_config(tmp_path / "none.json")


@pytest.mark.parametrize("change, message", [
    ({"model_type": None}, "model_type is missing in config: must be one of bloom, deepseek_v2, deepseek_v3, "),
    ({"model_type": "foo"}, "model_type = foo: must be one of bloom, deepseek_v2, deepseek_v3, "),
    ({"model_type": ["llama"]}, 'model_type = ["llama"]: must be one of bloom, '),
    ({"hidden_size": None}, "hidden_size is missing in config: must be a whole number, at least 1"),
    ({"hidden_size": "abc"}, "hidden_size = abc: must be a whole number, at least 1"),
    ({"hidden_size": 4096.5}, "hidden_size = 4096.5: must be a whole number, at least 1"),
    ({"hidden_size": True}, "hidden_size = true: must be a whole number, at least 1"),
    ({"vocab_size": 0}, "vocab_size = 0: must be a whole number, at least 1"),
    ({"intermediate_size": [11008]}, "intermediate_size = [11008]: must be a whole number, at least 1"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings = no: must be true or false"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1: must be true or false"),
    ({"attention_bias": True}, "mlp_bias = false: must be true, other shapes are not counted"),
    ({"num_attention_heads": 24}, "d_head = 170.7: must be a whole number, it is d_model/n_heads"),
    ({"num_key_value_heads": 5}, "n_kv_heads = 5: must divide n_heads = 32"),
])
def test_wrong_values(change, message):
    """Each refusal names the key, what was given and what must be."""
    with pytest.raises(ValueError) as refused:
        shape(PUBLISHED["Llama-2-7b"][0] | change)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name, change, message", [
    ("opt-1.3b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512: must be 2048, other shapes are not counted"),
    ("opt-1.3b", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine = false: must be true, other shapes are not counted"),
    ("opt-1.3b", {"do_layer_norm_before": False}, "do_layer_norm_before = false: must be true, other shapes are not counted"),
    ("gpt-neox-20b", {"attention_bias": False}, "attention_bias = false: must be true, other shapes are not counted"),
    ("Qwen3-8B", {"attention_bias": True}, "attention_bias = true: must be false, other shapes are not counted"),
    ("DeepSeek-V3", {"moe_layer_freq": 2}, "moe_layer_freq = 2: must be 1, other shapes are not counted"),
    ("DeepSeek-V3", {"first_k_dense_replace": 62}, "first_k_dense_replace = 62: must be a whole number, at most 61"),
    ("DeepSeek-V3", {"first_k_dense_replace": -1}, "first_k_dense_replace = -1: must be a whole number, at least 0"),
    ("Mixtral-8x7B", {"num_experts_per_tok": 9}, "num_experts_per_tok = 9: must be a whole number, at most 8"),
    ("OLMo-2-7B", {"num_key_value_heads": 1}, "qk_norm = 16.5: must be a whole number, it is n_heads/2 + n_kv_heads/2"),
])
def test_shapes_that_cannot_be_counted(name, change, message):
    """Better no count than a wrong one."""
    with pytest.raises(ValueError) as refused:
        shape(PUBLISHED[name][0] | change)
    assert str(refused.value) == message


def test_the_given_dictionary_stays():
    found = PUBLISHED["DeepSeek-V3"][0]
    before = json.dumps(found)
    assert read_config(found) == read_config(found) and json.dumps(found) == before


def in_the_page(texts):
    """What the front end makes of each text: the fields and counts of a model, or its refusal."""
    return run("""return data.map(text => { try { const shape = onegpu.readConfig(text, ONEGPU, "config.json"); return [shape, onegpu.counted(ONEGPU, shape)]; }
                  catch (error) { if (!(error instanceof RangeError)) throw error; return error.message; } })""", texts)


def test_the_page_reads_the_same():
    """Every published config, and every key left out or null: the same fields, counts and refusals as in Python."""
    tried = [found for found, *_ in PUBLISHED.values()]
    tried += [c for found in tried for key in found for c in ({k: v for k, v in found.items() if k != key}, found | {key: None})]
    for config, answer in zip(tried, in_the_page([json.dumps(c) for c in tried]), strict=True):
        try:
            fields = read_config(config)
            expected = [fields, {a: getattr(Transformer(**fields), a) for a in COUNTS}]
            assert answer[0] == fields and {a: answer[1][a] for a in COUNTS} == expected[1]
        except ValueError as refused:
            assert answer == str(refused)


BAD = ["", "[]", "null", "7", '"llama"', '{"model_type": "llama", "hidden_si', "[" * 100000, '{"model_type": "constructor"}', '{"model_type": "llama", "num_hidden_layers": NaN}']


def test_the_page_refuses_in_the_same_words(tmp_path):
    """Truncated and foreign files, and each wrong value above."""
    changes = [("Llama-2-7b", c) for c, _ in test_wrong_values.pytestmark[0].args[1]] + [(n, c) for n, c, _ in test_shapes_that_cannot_be_counted.pytestmark[0].args[1]]
    texts = BAD + [json.dumps(PUBLISHED[name][0] | change) for name, change in changes]
    file = tmp_path / "config.json"
    for text, answer in zip(texts, in_the_page(texts), strict=True):
        file.write_text(text)
        with pytest.raises(ValueError) as refused:
            shape(file)
        assert answer == str(refused.value)
