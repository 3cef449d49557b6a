package main

// row is an audit, or another comparison of two trainers, in a log.
type row struct {
	log      string    // name of the log
	Kind     string    `json:"k"` // honest, counted (a pair's audits, with the worst of them), or an attack
	Step     uint32    `json:"s"`
	Trainer  string    `json:"t"`
	Verifier string    `json:"v"`
	Fault    int       `json:"f,omitempty"`
	Error    float64   `json:"e,omitempty"`   // of all chunks together
	Top      []float64 `json:"top,omitempty"` // the largest errors of chunks
	Middle   float64   `json:"mid,omitempty"` // their median
	Cosine   float64   `json:"c,omitempty"`   // for a shadow: share of opposite choices
	Sets     float64   `json:"set,omitempty"` // mean share of chosen coefficients
	Signs    float64   `json:"sgn,omitempty"` // least share of equal signs
	Length   float64   `json:"l,omitempty"`   // longest momentum over the maximum length
	Audits   int       `json:"n,omitempty"`   // number of counted audits
	Stopped  int       `json:"x,omitempty"`   // number of failed audits among these
	Shaken   float64   `json:"sh,omitempty"`  // error after allowing for rounding, if the plain error is beyond the limits
}
