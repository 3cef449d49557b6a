package audits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/audit"
)

// ErrMalformed says that bytes are not evidence, or no report.
var ErrMalformed = errors.New("malformed evidence")

// maxHeads is of how many results an opening shows the heads: those of its Previous and Earlier.
const maxHeads = 2

const (
	evidenceMagic  = "PSYE"
	evidenceHeader = 4 + 1 + 1
	headSize       = 4 + 4 + 32
)

// Evidence is what a trainer shows of a result.
type Evidence struct {
	Opening audit.Opening
	// Heads are those of the results that the opening is about, newest first: who was away does not
	// have them, and nobody has those that were never announced because their rounds were over.
	Heads []Head
}

// MaxEvidenceSize returns what no evidence exceeds, in bytes.
func MaxEvidenceSize(shapes audit.Shapes) int {
	return evidenceHeader + maxHeads*headSize + audit.MaxOpeningSize(shapes, audit.DefaultChunks)
}

// Encode returns the bytes of evidence:
//
//	"PSYE" ‖ version u8 = 1 ‖ heads u8, then for each
//	step u32 ‖ previous u32 ‖ root [32], and then the opening
func (e Evidence) Encode(shapes audit.Shapes) ([]byte, error) {
	if len(e.Heads) > maxHeads {
		return nil, fmt.Errorf("encode evidence: %w: %d heads, at most %d", ErrMalformed, len(e.Heads), maxHeads)
	}
	opening, err := e.Opening.Encode(shapes)
	if err != nil {
		return nil, fmt.Errorf("encode evidence: %w", err)
	}
	b := append([]byte(evidenceMagic), 1, byte(len(e.Heads)))
	for _, h := range e.Heads {
		b = binary.LittleEndian.AppendUint32(b, h.Step)
		b = binary.LittleEndian.AppendUint32(b, h.Previous)
		b = append(b, h.Root[:]...)
	}
	return append(b, opening...), nil
}

// DecodeEvidence reads exactly what Encode writes for these shapes.
func DecodeEvidence(b []byte, shapes audit.Shapes) (Evidence, error) {
	if most := MaxEvidenceSize(shapes); len(b) > most {
		return Evidence{}, fmt.Errorf("decode evidence: %w: %d bytes, at most %d", ErrMalformed, len(b), most)
	}
	if len(b) < evidenceHeader || string(b[:4]) != evidenceMagic || b[4] != 1 {
		return Evidence{}, fmt.Errorf("decode evidence: %w: it does not begin with %q and version 1", ErrMalformed, evidenceMagic)
	}
	count := int(b[5])
	if count > maxHeads || len(b) < evidenceHeader+count*headSize {
		return Evidence{}, fmt.Errorf("decode evidence: %w: %d heads in %d bytes", ErrMalformed, count, len(b))
	}
	b = b[evidenceHeader:]
	var e Evidence
	for range count {
		e.Heads = append(e.Heads, Head{Step: binary.LittleEndian.Uint32(b), Previous: binary.LittleEndian.Uint32(b[4:]), Root: [32]byte(b[8:headSize])})
		b = b[headSize:]
	}
	var err error
	if e.Opening, err = audit.DecodeOpening(b, shapes); err != nil {
		return Evidence{}, fmt.Errorf("decode evidence: %w", err)
	}
	return e, nil
}

// Report is what a verifier reveals of its verdict: it opens the seal.
type Report struct {
	Salt    [32]byte
	Verdict audit.Verdict
}

// MaxReportSize is what no report exceeds, in bytes.
const MaxReportSize = 2048

// Nothing reports whether the verifier says that there was nothing to audit.
func (r Report) Nothing() bool { return len(r.Verdict.Chunks) == 0 }

// Encode returns salt [32] ‖ the encoded verdict; the salt alone where there was nothing to audit.
func (r Report) Encode() ([]byte, error) {
	if r.Nothing() {
		return slices.Clone(r.Salt[:]), nil
	}
	verdict, err := r.Verdict.Encode()
	return append(r.Salt[:], verdict...), err
}

// DecodeReport reads exactly what Encode writes.
func DecodeReport(b []byte) (Report, error) {
	if len(b) < 32 || len(b) > MaxReportSize {
		return Report{}, fmt.Errorf("decode report: %w: %d bytes", ErrMalformed, len(b))
	}
	if len(b) == 32 {
		return Report{Salt: [32]byte(b)}, nil
	}
	v, err := audit.DecodeVerdict(b[32:])
	if err != nil {
		return Report{}, fmt.Errorf("decode report: %w", err)
	}
	return Report{Salt: [32]byte(b), Verdict: v}, nil
}

// Prints returns what the verifier says that its gradient is like.
func (r Report) Prints() []audit.Print {
	prints := make([]audit.Print, len(r.Verdict.Chunks))
	for i, c := range r.Verdict.Chunks {
		prints[i] = c.Print
	}
	return prints
}

// Seal returns what the verifier committed to before anything was opened.
func (r Report) Seal() [32]byte {
	return audit.Seal(audit.SealPrints, r.Salt, audit.EncodePrints(r.Prints()))
}
