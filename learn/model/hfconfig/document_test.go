package hfconfig

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

const least = `"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4`

// TestRead reads documents of a new architecture: fields of this architecture only, fields of every
// architecture, and fields that are not supported.
func TestRead(t *testing.T) {
	types := map[string][]string{"NewForCausalLM": {"new"}, "NewerForCausalLM": {"newer", "newest"}}
	document := func(more string) string { return `{"architectures": ["NewForCausalLM"], ` + least + more + `}` }
	for _, test := range []struct {
		name, text string
		ok         bool
	}{
		{"least", document(``), true},
		{"its model type", document(`, "model_type": "new"`), true},
		{"Python's constants", document(`, "time_step_limit": [0.0, Infinity], "loss": NaN, "x": {"y": -Infinity}`), true},
		{"NaN in a field that is read", document(`, "rms_norm_eps": NaN`), false},
		{"null", document(`, "quantization_config": null, "rope_scaling": null, "hidden_act": null`), true},
		{"another one's model type", document(`, "model_type": "newer"`), false},
		{"a second model type", strings.Replace(document(`, "model_type": "newest"`), "New", "Newer", 1), true},
		{"neither model type", strings.Replace(document(`, "model_type": "new"`), "New", "Newer", 1), false},
		{"unknown architecture", `{"architectures": ["OldForCausalLM"]}`, false},
		{"two architectures", `{"architectures": ["NewForCausalLM", "NewerForCausalLM"]}`, false},
		{"no JSON", `{`, false},
		{"type of a shared field", document(`, "hidden_act": 1`), false},
		{"type of its own field", document(`, "window": "wide"`), false},
		{"activation", document(`, "hidden_act": "gelu"`), false},
		{"attention bias", document(`, "attention_bias": true`), false},
		{"bias", document(`, "mlp_bias": true`), false},
		{"dropout", document(`, "attention_dropout": 0.1`), false},
		{"quantized", document(`, "quantization_config": {}`), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var own struct {
				Window *int `json:"window"`
			}
			d, err := Read([]byte(test.text), &own, types)
			if err == nil {
				var p Checker
				d.RefuseBiases(&p)
				d.RefuseActivation(&p, "silu")
				err = p.Err()
			}
			if test.ok {
				if err != nil || !strings.HasPrefix(d.Architecture(), "New") {
					t.Errorf("got %q, %v; want nil error and text that begins with \"New\"", d.Architecture(), err)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
			golden.Message(t, test.name, err)
		})
	}
}

func TestRope(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       Rope // without Scaling; zero if Rope refuses text
		factor     float64
	}{
		{name: "nothing", text: `{}`, want: Rope{Theta: 10000, Type: "default", Field: "rope_scaling"}},
		{name: "theta", text: `{"rope_theta": 5e5}`, want: Rope{Theta: 5e5, Type: "default", Field: "rope_scaling"}},
		{name: "older name", text: `{"rope_scaling": {"type": "yarn", "factor": 4}}`, want: Rope{Theta: 10000, Type: "yarn", Field: "rope_scaling"}, factor: 4},
		{name: "both names", text: `{"rope_scaling": {"type": "su", "rope_type": "yarn", "factor": 4}}`, want: Rope{Theta: 10000, Type: "yarn", Field: "rope_scaling"}, factor: 4},
		{name: "transformers 5", text: `{"rope_theta": 2, "rope_parameters": {"rope_type": "yarn", "rope_theta": 3, "factor": 8}}`,
			want: Rope{Theta: 3, Type: "yarn", Field: "rope_parameters"}, factor: 8},
		{name: "theta inside rope_scaling", text: `{"rope_theta": 2, "rope_scaling": {"rope_type": "yarn", "rope_theta": 3, "factor": 8}}`,
			want: Rope{Theta: 3, Type: "yarn", Field: "rope_scaling"}, factor: 8},
		{name: "one is null", text: `{"rope_scaling": null, "rope_parameters": {"rope_type": "yarn", "factor": 8}}`,
			want: Rope{Theta: 10000, Type: "yarn", Field: "rope_parameters"}, factor: 8},
		{name: "two that agree", text: `{"rope_theta": 3, "rope_scaling": {"type": "yarn", "factor": 8}, "rope_parameters": {"rope_type": "yarn", "rope_theta": 3, "factor": 8}}`,
			want: Rope{Theta: 3, Type: "yarn", Field: "rope_scaling"}, factor: 8},
		{name: "two of which neither scales", text: `{"rope_scaling": {"factor": 8}, "rope_parameters": {"rope_type": "default"}}`,
			want: Rope{Theta: 10000, Type: "default", Field: "rope_scaling"}},
		{name: "two types", text: `{"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_scaling": {"rope_type": "yarn", "factor": 8}}`},
		{name: "two thetas", text: `{"rope_theta": 2, "rope_parameters": {"rope_theta": 3}, "rope_scaling": {"rope_type": "default"}}`},
		{name: "two factors", text: `{"rope_scaling": {"type": "yarn", "factor": 8}, "rope_parameters": {"type": "yarn", "factor": 4}}`},
		{name: "original context inside and outside", text: `{"original_max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 8, "original_max_position_embeddings": 32}}`},
		{name: "part of a head, default", text: `{"rope_parameters": {"partial_rotary_factor": 0.5}}`},
		{name: "part of a head, scaled", text: `{"rope_scaling": {"type": "yarn", "partial_rotary_factor": 0.25}}`},
		{name: "part of a head, outside", text: `{"partial_rotary_factor": 0.5}`},
		{name: "part of a head in the one that does not count", text: `{"rope_scaling": {}, "rope_parameters": {"partial_rotary_factor": 0.5}}`},
		{name: "all of a head", text: `{"partial_rotary_factor": 1, "rope_parameters": {"partial_rotary_factor": 1}}`, want: Rope{Theta: 10000, Type: "default", Field: "rope_parameters"}},
		{name: "theta outside", text: `{"rope_theta": 2, "rope_parameters": {}}`, want: Rope{Theta: 2, Type: "default", Field: "rope_parameters"}},
		{name: "too small a theta", text: `{"rope_theta": 1}`},
		{name: "another type", text: `{"rope_parameters": {"rope_type": "linear"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var d Document
			if err := Decode([]byte(test.text), &d); err != nil {
				t.Fatal(err)
			}
			var p Checker
			d.RefusePartialRotary(&p)
			got := d.Rope(&p, 1.5, "default", "yarn")
			if test.want.Theta == 0 {
				golden.Message(t, test.name, p.Err())
				return
			}
			if factor := got.Scaling.Factor; (factor == nil) != (test.factor == 0) || factor != nil && *factor != test.factor {
				t.Errorf("factor %v, want %v", factor, test.factor)
			}
			if got.Scaling = (RopeScaling{}); !reflect.DeepEqual(got, test.want) || p.Err() != nil {
				t.Errorf("%+v, %v, want %+v", got, p.Err(), test.want)
			}
		})
	}
}

// TestBaseNamesFields removes each required field in turn.
func TestBaseNamesFields(t *testing.T) {
	for _, field := range strings.Split(least, ", ") {
		var d Document
		if err := Decode([]byte("{"+strings.Replace(least, field, `"x": 1`, 1)+"}"), &d); err != nil {
			t.Fatal(err)
		}
		var p Checker
		d.Base(&p)
		name := strings.Split(field, `"`)[1]
		if err := p.Err(); !errors.Is(err, ErrInvalid) {
			t.Errorf("without %s: %v", name, err)
		} else {
			golden.Message(t, "without "+name, err)
		}
	}
}
