package checkpoint

import (
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
)

func TestConfigNamesTheTypeOfTheWeights(t *testing.T) {
	f32, bf16, whole := safetensors.Tensor{DType: safetensors.F32}, safetensors.Tensor{DType: safetensors.BF16}, safetensors.Tensor{DType: safetensors.I64}
	tests := []struct {
		name         string
		tensors      []safetensors.Tensor
		config, want string
	}{
		{"other type", []safetensors.Tensor{whole, f32}, "{\"a\": 1,\n \"dtype\" : \"bfloat16\" , \"b\": {\"dtype\": \"x\"}}\n", "{\"a\": 1,\n \"dtype\" : \"float32\" , \"b\": {\"dtype\": \"x\"}}\n"},
		{"old key", []safetensors.Tensor{f32}, `{"torch_dtype":"float16"}`, `{"torch_dtype":"float32"}`},
		{"both keys", []safetensors.Tensor{bf16}, `{"torch_dtype":null,"dtype":"float32"}`, `{"torch_dtype":"bfloat16","dtype":"bfloat16"}`},
		{"the widest", []safetensors.Tensor{bf16, f32}, `{"dtype":"bfloat16"}`, `{"dtype":"float32"}`},
		{"right already", []safetensors.Tensor{f32}, `{"dtype":"float32"}`, `{"dtype":"float32"}`},
		{"no key", []safetensors.Tensor{f32}, `{"a":["dtype","x"]}`, `{"a":["dtype","x"]}`},
		{"Python's constants", []safetensors.Tensor{f32}, `{"a":[NaN, -Infinity],"dtype":"float16","b":Infinity}`, `{"a":[NaN, -Infinity],"dtype":"float32","b":Infinity}`},
		{"no weights", nil, `{"dtype":"float16"}`, `{"dtype":"float16"}`},
		{"no object", []safetensors.Tensor{f32}, `["dtype","x"]`, `["dtype","x"]`},
		{"no JSON", []safetensors.Tensor{f32}, `{"dtype":"x",`, `{"dtype":"x",`},
	}
	for _, test := range tests {
		s := Snapshot{Files: []File{{"a", nil}, {ConfigFile, []byte(test.config)}}, Tensors: test.tensors}
		before := s.Files
		s.NameType()
		if got := string(s.Files[1].Data); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
		if string(before[1].Data) != test.config {
			t.Errorf("%s: the input files were changed", test.name)
		}
	}
}
