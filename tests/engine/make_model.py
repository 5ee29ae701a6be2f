"""Writes a llama model whose text is known in advance.

    make_model.py OUT [LAYERS]

The embedding is one-hot and the output matrix is a table "after this token, that token", so greedy
decoding says the same readable sentences for ever. `attn_output` and `ffn_down` are zero: attention
and its cache are computed for real, they only cannot change the text. Layers are the speed knob:
2 layers (2.8 MB) give thousands of tokens a second on one core, 64 layers (79 MB) about ninety.
"""

import sys

import gguf
import numpy as np

SENTENCES = [
    " The| quick| brown| fox| jumps| over| the| lazy| dog|.".split("|"),
    " A| router| sends| each| request| to| one| backend| and| waits|.".split("|"),
]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, HEADS, KV_HEADS, CONTEXT = 320, 4, 2, 4096
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


def byte_alphabet():
    """GPT-2's printable stand-in for each of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + index) for index, byte in enumerate(others)
    }


class Vocabulary:
    """256 bytes, the words of the sentences, three special tokens."""

    def __init__(self):
        self.alphabet = byte_alphabet()
        self.tokens = [self.alphabet[byte] for byte in range(256)]
        for word in (word for sentence in SENTENCES for word in sentence):
            if self.encode(word) not in self.tokens:
                self.tokens.append(self.encode(word))
        self.ordinary = len(self.tokens)
        self.tokens += [END_OF_TEXT, TURN_START, TURN_END]

    def encode(self, text):
        return "".join(self.alphabet[byte] for byte in text.encode())

    def id(self, text):
        return self.tokens.index(text if text in self.tokens[self.ordinary :] else self.encode(text))


def next_token_table(vocabulary):
    """`table[next, current]` is a logit: one certain successor per word, three likely ones after a full stop."""
    table = np.zeros((len(vocabulary.tokens), WIDTH), np.float16)
    for sentence in SENTENCES:
        for current, following in zip(sentence, sentence[1:]):
            table[vocabulary.id(following), vocabulary.id(current)] = 2
    for current in [*range(256), *map(vocabulary.id, (END_OF_TEXT, TURN_START, TURN_END))]:
        table[vocabulary.id(" The"), current] = 2
    stop = vocabulary.id(".")
    table[:, stop] = 0
    for following, logit in ((" A", 1.6), (" The", 1.55), (TURN_END, 1.5)):
        table[vocabulary.id(following), stop] = logit
    return table


def write_metadata(writer, vocabulary, layers):
    size = len(vocabulary.tokens)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary.tokens)
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    writer.add_token_types([normal] * vocabulary.ordinary + [control] * (size - vocabulary.ordinary))
    writer.add_token_merges([vocabulary.encode(" ") + " A"])
    writer.add_bos_token_id(vocabulary.id(END_OF_TEXT))
    writer.add_eos_token_id(vocabulary.id(TURN_END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_tensors(writer, vocabulary, layers):
    generator = np.random.default_rng(7)
    kv_width = WIDTH // HEADS * KV_HEADS

    def noise(rows):
        return (generator.standard_normal((rows, WIDTH)) * 0.05).astype(np.float16)

    zero = np.zeros((WIDTH, WIDTH), np.float16)
    one = np.ones(WIDTH, np.float32)
    writer.add_tensor("token_embd.weight", np.eye(len(vocabulary.tokens), WIDTH, dtype=np.float16))
    writer.add_tensor("output_norm.weight", one)
    writer.add_tensor("output.weight", next_token_table(vocabulary))
    for layer in range(layers):
        for name, tensor in {
            "attn_norm": one,
            "ffn_norm": one,
            "attn_q": noise(WIDTH),
            "attn_k": noise(kv_width),
            "attn_v": noise(kv_width),
            "attn_output": zero,
            "ffn_gate": noise(WIDTH),
            "ffn_up": noise(WIDTH),
            "ffn_down": zero,
        }.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", tensor)


def make(path, layers=2):
    vocabulary = Vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    write_metadata(writer, vocabulary, layers)
    write_tensors(writer, vocabulary, layers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
