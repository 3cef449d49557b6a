package follow

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/record/wire"
)

// HostFault is an error that means that the host of a run is dishonest: it sent what an honest host never
// sends. A client that finds one must stop, because it no longer knows the state of the run.
type HostFault struct {
	Reason   string
	Evidence Evidence
}

// Error implements error.
func (h *HostFault) Error() string { return "the host of the run is dishonest: " + h.Reason }

// Evidence is the data that shows a HostFault. Two contradicting heads prove it to all third parties.
// Records that do not follow prove it to parties that have the preceding log.
type Evidence struct {
	Genesis      []byte      // signed genesis of the run
	Heads        []wire.Head // signed by the host
	Index        uint64      // number of records before Records
	Records      [][]byte    // as sent by the host, up to the record that does not follow; may be empty
	Announcement []byte      // of the member that received a different head; may be empty
}

// Contradiction returns two heads of the evidence that the run's host signed and that cannot belong
// to one history.
func (e Evidence) Contradiction() (a, b wire.Head, found bool) {
	g, err := OpenGenesis(e.Genesis)
	if err != nil {
		return a, b, false
	}
	state, err := g.First()
	if err != nil {
		return a, b, false
	}
	var valid []wire.Head
	for _, h := range e.Heads {
		if !h.Verify([32]byte(state.Host), g.Run()) {
			continue
		}
		for _, other := range valid {
			if h.Contradicts(other) {
				return other, h, true
			}
		}
		valid = append(valid, h)
	}
	return a, b, false
}

// evidenceFile is the JSON form of Evidence. Bytes are hexadecimal.
type evidenceFile struct {
	Reason       string     `json:"reason"`
	Run          string     `json:"run"`
	Genesis      string     `json:"genesis"`
	Heads        []headFile `json:"heads"`
	Index        uint64     `json:"index"`
	Records      []string   `json:"records"`
	Announcement string     `json:"announcement,omitempty"`
}

type headFile struct {
	Index     uint64 `json:"index"`
	Step      uint32 `json:"step"`
	Hash      string `json:"hash"`
	Signature string `json:"signature"`
}

// JSON returns the content of a file that keeps the evidence.
func (h *HostFault) JSON() []byte {
	e := h.Evidence
	f := evidenceFile{
		Reason: h.Reason, Genesis: hex.EncodeToString(e.Genesis), Heads: []headFile{}, Index: e.Index, Records: []string{},
		Announcement: hex.EncodeToString(e.Announcement),
	}
	run := wire.HostedRun(e.Genesis)
	f.Run = hex.EncodeToString(run[:])
	for _, h := range e.Heads {
		f.Heads = append(f.Heads, headFile{h.Index, h.Step, hex.EncodeToString(h.Hash[:]), hex.EncodeToString(h.Signature[:])})
	}
	for _, r := range e.Records {
		f.Records = append(f.Records, hex.EncodeToString(r))
	}
	content, err := json.MarshalIndent(f, "", "  ")
	if err != nil { // impossible: the fields are strings and numbers
		panic("follow: " + err.Error())
	}
	return append(content, '\n')
}

// ErrEvidence means that bytes are not the evidence of a [HostFault].
var ErrEvidence = errors.New("not evidence against a host")

// ReadHostFault decodes the output of JSON. Its errors wrap [ErrEvidence].
func ReadHostFault(content []byte) (*HostFault, error) {
	var f evidenceFile
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEvidence, err)
	}
	l := &HostFault{Reason: f.Reason, Evidence: Evidence{Index: f.Index}}
	e := &l.Evidence
	var err error
	read := func(name, text string) []byte {
		raw, bad := hex.DecodeString(text)
		if bad != nil && err == nil {
			err = fmt.Errorf("%w: %s: want hexadecimal digits: %w", ErrEvidence, name, bad)
		}
		return raw
	}
	e.Genesis, e.Announcement = read("genesis", f.Genesis), read("announcement", f.Announcement)
	for _, h := range f.Heads {
		head := wire.Head{Index: h.Index, Step: h.Step}
		if copy(head.Hash[:], read("hash", h.Hash)) != len(head.Hash) || copy(head.Signature[:], read("signature", h.Signature)) != len(head.Signature) {
			return nil, fmt.Errorf("%w: head %d is cut", ErrEvidence, h.Index)
		}
		e.Heads = append(e.Heads, head)
	}
	for _, r := range f.Records {
		e.Records = append(e.Records, read("record", r))
	}
	return l, err
}
