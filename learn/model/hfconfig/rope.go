package hfconfig

import (
	"slices"
	"strings"
)

// RopeScaling are the parameters of rotary positions, as they are written; nil is absent. Which
// ones count depends on the type.
type RopeScaling struct {
	RopeType  *string  `json:"rope_type"`
	Type      *string  `json:"type"` // older name of rope_type
	RopeTheta *float64 `json:"rope_theta"`
	Factor    *float64 `json:"factor"`
	Original  *float64 `json:"original_max_position_embeddings"`

	LowFreqFactor  *float64 `json:"low_freq_factor"` // of llama3
	HighFreqFactor *float64 `json:"high_freq_factor"`

	BetaFast        *float64 `json:"beta_fast"` // of yarn
	BetaSlow        *float64 `json:"beta_slow"`
	MScale          *float64 `json:"mscale"`
	MScaleAllDim    *float64 `json:"mscale_all_dim"`
	AttentionFactor *float64 `json:"attention_factor"`
	Truncate        *bool    `json:"truncate"`
}

// Rope says how fast rotary positions turn.
type Rope struct {
	Theta   float64
	Type    string      // "default" if nothing else is said
	Field   string      // where Scaling was written
	Scaling RopeScaling // of types other than default
}

// Rope checks theta, which must not be below least, and the type, which must be among those.
func (d Document) Rope(p *Checker, least float64, types ...string) Rope {
	scaling, theta := d.RopeScaling, d.RopeTheta
	r := Rope{Type: "default", Field: "rope_scaling"}
	if d.RopeParameters != nil {
		scaling, r.Field = d.RopeParameters, "rope_parameters"
		if scaling.RopeTheta != nil {
			theta = scaling.RopeTheta
		}
	}
	r.Theta = p.Number("rope_theta", theta, 10000, least, 1e12)
	if scaling == nil {
		return r
	}
	r.Scaling = *scaling
	switch {
	case scaling.RopeType != nil:
		r.Type = *scaling.RopeType
	case scaling.Type != nil:
		r.Type = *scaling.Type
	}
	if !slices.Contains(types, r.Type) {
		p.Fail("%s.rope_type %q is not supported (%s)", r.Field, r.Type, strings.Join(types, ", "))
	}
	return r
}
