// logits MODEL.gguf OUT.safetensors id …: writes the ids, and llama.cpp's logits after each of them,
// as krait check reads them: one prompt a, computed in f32 with an f32 KV cache on one thread. If the
// model has an MTP head, its logits follow.
#include "llama.h"
#include "llama-ext.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static void fail(const char *what) {
	fprintf(stderr, "logits: %s\n", what);
	exit(1);
}

// decode feeds tokens, and hidden states of width floats if there are some, and returns all logits.
static std::vector<float> decode(llama_context *context, const std::vector<llama_token> &ids, const float *hidden, int width, int vocab) {
	llama_batch batch = llama_batch_init(ids.size(), width, 1);
	if (width > 0) {
		batch.token = (llama_token *)malloc(ids.size() * sizeof(llama_token));
		memcpy(batch.embd, hidden, ids.size() * width * sizeof(float));
	}
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
	std::vector<float> out;
	for (size_t i = 0; i < ids.size(); i++) {
		const float *row = llama_get_logits_ith(context, i);
		out.insert(out.end(), row, row + vocab);
	}
	return out;
}

// entry describes a tensor of rows from a byte on.
static std::string entry(const char *name, const char *type, size_t rows, size_t cols, size_t &at, size_t size) {
	std::string shape = cols > 0 ? "," + std::to_string(cols) : "";
	std::string out = std::string("\"") + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[1," + std::to_string(rows) + shape + "],\"data_offsets\":[" + std::to_string(at) + ",";
	at += rows * (cols > 0 ? cols : 1) * size;
	return out + std::to_string(at) + "]}";
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
	mp.load_mtp = true;
	llama_model *model = llama_model_load_from_file(argv[1], mp);
	if (!model)
		fail("the model does not load");
	const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
	const bool mtp = llama_model_n_layer_nextn(model) > 0;
	llama_context_params cp = llama_context_default_params();
	cp.n_ctx = 256, cp.n_batch = 256, cp.n_threads = 1, cp.n_threads_batch = 1;
	cp.type_k = cp.type_v = GGML_TYPE_F32;
	cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
	llama_context *context = llama_init_from_model(model, cp);
	if (!context)
		fail("there is no context");
	llama_set_embeddings_nextn(context, mtp, false);
	const std::vector<float> logits = decode(context, ids, nullptr, 0, vocab);
	std::vector<float> drafts;
	if (mtp) { // of each hidden state and the token after
		cp.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
		cp.ctx_other = context;
		llama_context *head = llama_init_from_model(model, cp);
		if (!head)
			fail("there is no context of the MTP head");
		drafts = decode(head, std::vector<llama_token>(ids.begin() + 1, ids.end()), llama_get_embeddings_nextn(context), llama_model_n_embd_out(model), vocab);
	}

	size_t at = 0;
	std::string header = "{" + entry("a.input_ids", "I64", ids.size(), 0, at, 8);
	header += "," + entry("a.logits", "F32", ids.size(), vocab, at, 4);
	if (mtp)
		header += "," + entry("a.mtp.logits", "F32", ids.size() - 1, vocab, at, 4);
	header += "}";
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
	fwrite(logits.data(), 4, logits.size(), out);
	fwrite(drafts.data(), 4, drafts.size(), out);
	if (fclose(out))
		fail("the file cannot be written");
}
