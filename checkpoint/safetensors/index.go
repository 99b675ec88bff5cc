package safetensors

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/krait-ml/krait/internal/files"
)

// ReadIndex reads the index of a model in several files, such as
// model.safetensors.index.json: the path of each tensor's file, from the index's folder on.
// It is an error when a path leads out of that.
func ReadIndex(path string) (map[string]string, error) {
	data, err := files.Read(path, maxHeader)
	if err != nil {
		return nil, err
	}
	weightMap, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return weightMap, nil
}

// parseIndex returns the weight_map of an index: for each tensor the path of
// its shard, cleaned, in the system's form, and inside the model's directory.
func parseIndex(data []byte) (weightMap map[string]string, err error) {
	err = readDocument(data, func(r *reader, key string) error {
		if key != "weight_map" { // "metadata" holds sizes that the shards tell as well
			return within(key, r.skip())
		}
		weightMap, err = r.stringMap()
		return within(key, err)
	})
	switch {
	case err != nil:
		return nil, err
	case weightMap == nil:
		return nil, errors.New("there is no weight_map, which says where each tensor is")
	case len(weightMap) == 0:
		return nil, errors.New("weight_map is empty")
	}
	for name, shard := range weightMap {
		local := filepath.Clean(filepath.FromSlash(shard))
		if shard == "" || local == "." || !filepath.IsLocal(local) {
			return nil, fmt.Errorf("weight_map places tensor %s in %s, which is not a path inside the model's directory", files.Quote(name), files.Quote(shard))
		}
		weightMap[name] = local
	}
	return weightMap, nil
}
