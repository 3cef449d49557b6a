package checkpoint

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/files/safetensors"
)

// typeNames are the names of weight types in config.json, the widest type first.
var typeNames = []struct {
	dtype safetensors.DType
	name  string
}{{safetensors.F64, "float64"}, {safetensors.F32, "float32"}, {safetensors.BF16, "bfloat16"}, {safetensors.F16, "float16"}}

// typeKeys are the keys for the type of the weights in config.json, new and old.
var typeKeys = []string{"dtype", "torch_dtype"}

// NameType sets the weight type in config.json to the type of the tensors, or to the widest of
// their types. If config.json names no type, NameType changes nothing. Readers compute in the named
// type, even if the tensors have a wider one. The rest of the file stays byte-identical. The files
// of s are not changed.
func (s *Snapshot) NameType() {
	name := ""
	for _, kind := range typeNames {
		if slices.ContainsFunc(s.Tensors, func(t safetensors.Tensor) bool { return t.DType == kind.dtype }) {
			name = kind.name
			break
		}
	}
	at := slices.IndexFunc(s.Files, func(f File) bool { return f.Name == ConfigFile })
	if name == "" || at < 0 {
		return
	}
	s.Files = slices.Clone(s.Files)
	s.Files[at].Data = nameType(s.Files[at].Data, name)
}

// nameType replaces the values of typeKeys in an object. It returns anything else unchanged.
func nameType(config []byte, name string) []byte {
	decoder := json.NewDecoder(bytes.NewReader(pythonjson.Quoted(config))) // has the same length
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return config
	}
	var out []byte
	copied := 0
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return config
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return config
		}
		if text, _ := key.(string); slices.Contains(typeKeys, text) {
			end := int(decoder.InputOffset())
			out = append(out, config[copied:end-len(value)]...)
			out = append(out, `"`+name+`"`...)
			copied = end
		}
	}
	return append(out, config[copied:]...)
}
