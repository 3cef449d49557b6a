package hfconfig

import (
	"reflect"
	"slices"
	"strings"
)

// RopeScaling contains the parameters of rotary positions as written; nil means absent. The type
// determines which of them are used.
type RopeScaling struct {
	RopeType  *string  `json:"rope_type"`
	Type      *string  `json:"type"` // older name of rope_type
	RopeTheta *float64 `json:"rope_theta"`
	Factor    *float64 `json:"factor"`
	Original  *float64 `json:"original_max_position_embeddings"`
	Partial   *float64 `json:"partial_rotary_factor"`

	LowFreqFactor  *float64 `json:"low_freq_factor"` // of llama3
	HighFreqFactor *float64 `json:"high_freq_factor"`

	BetaFast        *float64 `json:"beta_fast"` // of yarn
	BetaSlow        *float64 `json:"beta_slow"`
	MScale          *float64 `json:"mscale"`
	MScaleAllDim    *float64 `json:"mscale_all_dim"`
	AttentionFactor *float64 `json:"attention_factor"` // also of longrope
	Truncate        *bool    `json:"truncate"`

	ShortFactor []float64 `json:"short_factor"` // of longrope
	LongFactor  []float64 `json:"long_factor"`

	Full    *struct{} `json:"full_attention"` // of models with different rotary positions per kind of layer
	Sliding *struct{} `json:"sliding_attention"`
}

// nested reports whether it has settings for each kind of layers.
func (s *RopeScaling) nested() bool { return s != nil && (s.Full != nil || s.Sliding != nil) }

// Rope contains the settings of rotary positions.
type Rope struct {
	Theta   float64
	Type    string      // by default "default"
	Field   string      // the field that contained Scaling
	Scaling RopeScaling // for types other than default
}

// stretched contains the types that use original_max_position_embeddings.
var stretched = []string{"llama3", "yarn"}

// Rope checks theta, which must be at least minimum, and the type, which must be one of types. As
// in transformers, rope_scaling has precedence over rope_parameters, but both must be equal.
func (d Document) Rope(p *Checker, minimum float64, types ...string) Rope {
	if d.RopeScaling.nested() || d.RopeParameters.nested() {
		p.Fail("rope_parameters for each kind of layers (full_attention, sliding_attention) are not supported here")
	}
	r := d.written("rope_parameters", d.RopeParameters)
	if d.RopeScaling != nil || d.RopeParameters == nil {
		scaling := d.written("rope_scaling", d.RopeScaling)
		if d.RopeParameters != nil && !scaling.same(r) {
			p.Fail("rope_parameters (type %s, theta %v) and rope_scaling (type %s, theta %v) disagree: keep the one that the model was trained with",
				r.Type, r.Theta, scaling.Type, scaling.Theta)
		}
		r = scaling
	}
	if outside := d.OriginalMaxPositionEmbeddings; outside != nil && slices.Contains(stretched, r.Type) &&
		(r.Scaling.Original == nil || *r.Scaling.Original != *outside) {
		p.Fail("original_max_position_embeddings %v outside %s applies to rope_type %q, but %s sets another value; set the same value there", *outside, r.Field, r.Type, r.Field)
	}
	r.Theta = p.Number("rope_theta", &r.Theta, 0, minimum, 1e12)
	if !slices.Contains(types, r.Type) {
		p.Fail("%s.rope_type %q is not supported (%s)", r.Field, r.Type, strings.Join(types, ", "))
	}
	return r
}

// WantsYarn reports whether the type is yarn.
func (d Document) WantsYarn() bool {
	return d.written("", d.RopeScaling).Type == "yarn" || d.written("", d.RopeParameters).Type == "yarn"
}

// PartialRotary returns the fraction of each head that rotary positions rotate: the value in the
// rope object in use, else the value outside, else fallback.
func (d Document) PartialRotary(p *Checker, fallback float64) float64 {
	field, factor := "partial_rotary_factor", d.PartialRotaryFactor
	switch {
	case d.RopeScaling != nil && d.RopeScaling.Partial != nil:
		field, factor = "rope_scaling.partial_rotary_factor", d.RopeScaling.Partial
	case d.RopeScaling == nil && d.RopeParameters != nil && d.RopeParameters.Partial != nil:
		field, factor = "rope_parameters.partial_rotary_factor", d.RopeParameters.Partial
	}
	return p.Number(field, factor, fallback, 0, 1)
}

// RefusePartialRotary refuses configs that rotate only a part of each head.
func (d Document) RefusePartialRotary(p *Checker) {
	refuse := func(field string, factor *float64) {
		if factor != nil && *factor != 1 {
			p.Refuse(field, *factor)
		}
	}
	refuse("partial_rotary_factor", d.PartialRotaryFactor)
	if d.RopeScaling != nil {
		refuse("rope_scaling.partial_rotary_factor", d.RopeScaling.Partial)
	}
	if d.RopeParameters != nil {
		refuse("rope_parameters.partial_rotary_factor", d.RopeParameters.Partial)
	}
}

// written returns the rope in one of the two fields.
func (d Document) written(field string, scaling *RopeScaling) Rope {
	r := Rope{Theta: 10000, Type: "default", Field: field}
	if d.RopeTheta != nil {
		r.Theta = *d.RopeTheta
	}
	if scaling == nil {
		return r
	}
	if scaling.RopeTheta != nil {
		r.Theta = *scaling.RopeTheta
	}
	switch {
	case scaling.RopeType != nil:
		r.Type = *scaling.RopeType
	case scaling.Type != nil:
		r.Type = *scaling.Type
	}
	if r.Type != "default" {
		r.Scaling = *scaling
	}
	return r
}

// same reports whether two ropes are equal, whatever their fields and names.
func (r Rope) same(other Rope) bool {
	bare := func(r Rope) Rope {
		r.Field = ""
		r.Scaling.RopeType, r.Scaling.Type, r.Scaling.RopeTheta, r.Scaling.Partial = nil, nil, nil, nil
		return r
	}
	return reflect.DeepEqual(bare(r), bare(other))
}
