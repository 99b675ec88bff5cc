// logits MODEL.gguf OUT.safetensors id …: writes the ids, and llama.cpp's logits after each of them,
// as krait check reads them: one prompt a, computed in f32 with an f32 KV cache on one thread.
#include "llama.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void fail(const char *what) {
	fprintf(stderr, "logits: %s\n", what);
	exit(1);
}

int main(int argc, char **argv) {
	if (argc < 4)
		fail("give MODEL.gguf OUT.safetensors and ids");
	std::vector<llama_token> ids;
	for (int i = 3; i < argc; i++)
		ids.push_back(atoi(argv[i]));
	llama_backend_init();
	llama_model_params mp = llama_model_default_params();
	mp.n_gpu_layers = 0;
	llama_model *model = llama_model_load_from_file(argv[1], mp);
	if (!model)
		fail("the model does not load");
	const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
	llama_context_params cp = llama_context_default_params();
	cp.n_ctx = 256, cp.n_batch = 256, cp.n_threads = 1, cp.n_threads_batch = 1;
	cp.type_k = cp.type_v = GGML_TYPE_F32;
	cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
	llama_context *context = llama_init_from_model(model, cp);
	if (!context)
		fail("there is no context");
	llama_batch batch = llama_batch_init(ids.size(), 0, 1);
	for (size_t i = 0; i < ids.size(); i++) {
		batch.token[i] = ids[i];
		batch.pos[i] = i;
		batch.n_seq_id[i] = 1;
		batch.seq_id[i][0] = 0;
		batch.logits[i] = true;
	}
	batch.n_tokens = ids.size();
	if (llama_decode(context, batch))
		fail("decoding failed");

	const size_t tokens = ids.size(), bytes = 8 * tokens, logits = 4 * tokens * vocab;
	std::string n = std::to_string(tokens), header = "{\"a.input_ids\":{\"dtype\":\"I64\",\"shape\":[1," + n + "],\"data_offsets\":[0," + std::to_string(bytes) +
		"]},\"a.logits\":{\"dtype\":\"F32\",\"shape\":[1," + n + "," + std::to_string(vocab) + "],\"data_offsets\":[" + std::to_string(bytes) + "," + std::to_string(bytes + logits) + "]}}";
	header.resize((header.size() + 7) / 8 * 8, ' ');
	FILE *out = fopen(argv[2], "wb");
	if (!out)
		fail("the file cannot be written");
	const uint64_t length = header.size();
	fwrite(&length, 8, 1, out);
	fwrite(header.data(), 1, header.size(), out);
	for (llama_token id : ids) {
		const int64_t wide = id;
		fwrite(&wide, 8, 1, out);
	}
	for (size_t i = 0; i < tokens; i++)
		fwrite(llama_get_logits_ith(context, i), 4, vocab, out);
	if (fclose(out))
		fail("the file cannot be written");
}
