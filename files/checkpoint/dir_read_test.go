package checkpoint

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReadDirTakesPythonsConstants: json.dump writes NaN and Infinity. In a field that is read they are refused.
func TestReadDirTakesPythonsConstants(t *testing.T) {
	for added, want := range map[string]string{
		`"time_step_limit":[0.0,Infinity],`: "", `"a":{"b":-Infinity,"c":NaN},`: "", `"a":"NaN, Infinity",`: "",
		`"num_nextn_predict_layers":NaN,`: "num_nextn_predict_layers",
	} {
		dir := filepath.Join(t.TempDir(), "model")
		if err := WriteDir(dir, sample(1)); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "config.json", strings.Replace(config, "{", "{"+added, 1))
		_, err := ReadDir(dir)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want one with %q", added, err, want)
		}
	}
}

// TestReadDirTakesFurtherLayers reads folders whose tensors are of more layers than the model
// has: such as predict further tokens.
func TestReadDirTakesFurtherLayers(t *testing.T) {
	for further, want := range map[string]string{
		"null": "layers", "0": "layers", "1": "", "2": "", "64": "",
		"-1": "num_nextn_predict_layers", "65": "num_nextn_predict_layers",
	} {
		s := sample(1)
		layer := s.Tensors[1]
		layer.Name = "model.layers.1.mlp.up_proj.weight"
		s.Tensors = slices.Insert(s.Tensors, 2, layer)
		s.Files[0].Data = []byte(strings.Replace(config, `layers":1`, `layers":2`, 1))
		dir := filepath.Join(t.TempDir(), "model")
		if err := WriteDir(dir, s); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "config.json", strings.Replace(config, "{", `{"num_nextn_predict_layers":`+further+`,`, 1))
		_, err := ReadDir(dir)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("num_nextn_predict_layers %s: error %v, want one with %q", further, err, want)
		}
	}
}
