package hfconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrInvalid means that a config.json is invalid or requires features that the model does not have.
var ErrInvalid = errors.New("config.json")

// Document contains the common fields of config.json as written; nil means absent.
type Document struct {
	Architectures         []string `json:"architectures"`
	ModelType             *string  `json:"model_type"`
	VocabSize             *int     `json:"vocab_size"`
	HiddenSize            *int     `json:"hidden_size"`
	IntermediateSize      *int     `json:"intermediate_size"`
	NumHiddenLayers       *int     `json:"num_hidden_layers"`
	NumAttentionHeads     *int     `json:"num_attention_heads"`
	NumKeyValueHeads      *int     `json:"num_key_value_heads"`
	MaxPositionEmbeddings *int     `json:"max_position_embeddings"`
	RMSNormEps            *float64 `json:"rms_norm_eps"`
	InitializerRange      *float64 `json:"initializer_range"`
	TieWordEmbeddings     *bool    `json:"tie_word_embeddings"`

	RopeTheta      *float64     `json:"rope_theta"`
	RopeScaling    *RopeScaling `json:"rope_scaling"`
	RopeParameters *RopeScaling `json:"rope_parameters"` // transformers 5, instead of the two fields above

	OriginalMaxPositionEmbeddings *float64 `json:"original_max_position_embeddings"`
	PartialRotaryFactor           *float64 `json:"partial_rotary_factor"`

	HiddenAct          *string         `json:"hidden_act"`
	AttentionBias      bool            `json:"attention_bias"`
	MLPBias            bool            `json:"mlp_bias"`
	AttentionDropout   float64         `json:"attention_dropout"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`
}

// Base contains the common sizes of all models.
type Base struct {
	VocabSize             int     // rows of the embedding
	HiddenSize            int     // width of the residual stream
	IntermediateSize      int     // width inside a dense feed-forward layer
	NumHiddenLayers       int     // blocks
	NumAttentionHeads     int     // query heads
	MaxPositionEmbeddings int     // longest sequence, in tokens
	RMSNormEps            float64 // added to the mean square
	InitializerRange      float64 // standard deviation of initial weights
	TieWordEmbeddings     bool    // the head uses the embedding's weights
}

// Read reads a config.json of one of the architectures, and an architecture's own fields.
// modelTypes contains the values of model_type that each architecture accepts, the usual one first.
// Errors wrap ErrInvalid and name the field.
func Read(config []byte, own any, modelTypes map[string][]string) (Document, error) {
	var d Document
	for _, into := range []any{&d, own} {
		if err := Decode(config, into); err != nil {
			return Document{}, err
		}
	}
	var p Checker
	if accepted, ok := modelTypes[d.Architecture()]; !ok {
		p.Fail("architectures is %q, want %s", d.Architectures, oneOf(slices.Sorted(maps.Keys(modelTypes))))
	} else if d.ModelType != nil && !slices.Contains(accepted, *d.ModelType) {
		p.Fail("model_type is %q, want %s", *d.ModelType, `"`+strings.Join(accepted, `" or "`)+`"`)
	}
	d.refuse(&p)
	return d, p.Err()
}

// Architecture returns the name of the architecture, or an empty string if there is not exactly
// one.
func (d Document) Architecture() string {
	if len(d.Architectures) != 1 {
		return ""
	}
	return d.Architectures[0]
}

func oneOf(names []string) string {
	lists := make([]string, len(names))
	for i, name := range names {
		lists[i] = fmt.Sprintf("%q", []string{name})
	}
	return strings.Join(lists, " or ")
}

// refuse refuses settings that no model here supports.
func (d Document) refuse(p *Checker) {
	switch {
	case d.AttentionDropout != 0:
		p.Refuse("attention_dropout", d.AttentionDropout)
	case d.quantMethod() == "mxfp4":
		p.Fail("quantization_config.quant_method mxfp4 is not supported: %s", DequantizeMXFP4)
	case len(d.QuantizationConfig) > 0 && string(d.QuantizationConfig) != "null":
		p.Fail("quantization_config %s is not supported: weights have to be f32, bf16 or f16; convert the model first", clip(d.QuantizationConfig))
	}
}

// DequantizeMXFP4 is the advice in errors about 4-bit weights.
const DequantizeMXFP4 = "dequantize the weights first (transformers: Mxfp4Config(dequantize=True), then save_pretrained), or fetch a copy in bf16"

// quantMethod returns quantization_config.quant_method, or an empty string if absent.
func (d Document) quantMethod() string {
	var q struct {
		Method string `json:"quant_method"`
	}
	if json.Unmarshal(d.QuantizationConfig, &q) != nil { // absent or in another form, which refuse reports
		return ""
	}
	return q.Method
}

// RefuseActivation refuses a hidden_act other than want, if there is one.
func (d Document) RefuseActivation(p *Checker, want string) {
	if d.HiddenAct != nil && *d.HiddenAct != want {
		p.Refuse("hidden_act", *d.HiddenAct)
	}
}

// RefuseBiases refuses biases. It is for architectures without biases, or with biases that are
// always present.
func (d Document) RefuseBiases(p *Checker) {
	switch {
	case d.AttentionBias:
		p.Refuse("attention_bias", true)
	case d.MLPBias:
		p.Refuse("mlp_bias", true)
	}
}

// clip returns a value of a file on one line, shortened for a message.
func clip(value json.RawMessage) string {
	const most = 120
	var line bytes.Buffer
	if json.Compact(&line, value) != nil {
		return "(unreadable)"
	}
	if line.Len() > most {
		return strings.ToValidUTF8(line.String()[:most], "") + "…"
	}
	return line.String()
}

// Base checks the common sizes. It has the defaults of transformers.
func (d Document) Base(p *Checker) Base {
	return Base{
		VocabSize:             p.Size("vocab_size", d.VocabSize, 0, 1<<24),
		HiddenSize:            p.Size("hidden_size", d.HiddenSize, 0, 1<<17),
		IntermediateSize:      p.Size("intermediate_size", d.IntermediateSize, 0, 1<<20),
		NumHiddenLayers:       p.Size("num_hidden_layers", d.NumHiddenLayers, 0, 1<<12),
		NumAttentionHeads:     p.Size("num_attention_heads", d.NumAttentionHeads, 0, 1<<12),
		MaxPositionEmbeddings: p.Size("max_position_embeddings", d.MaxPositionEmbeddings, 2048, 1<<26),
		RMSNormEps:            p.Number("rms_norm_eps", d.RMSNormEps, 1e-6, 0, 1),
		InitializerRange:      p.Number("initializer_range", d.InitializerRange, 0.02, 0, 100),
		TieWordEmbeddings:     d.TieWordEmbeddings != nil && *d.TieWordEmbeddings,
	}
}
