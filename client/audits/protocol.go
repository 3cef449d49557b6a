package audits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/exchange"
	"github.com/psyche-go/psyche/identity"
)

// The protocols that clients answer for each other about audits. Their bytes are in docs/p2p.md.
const (
	OpeningProtocol = "/psyche/opening/1" // the evidence of a result, for who may ask
	ReportProtocol  = "/psyche/report/1"  // what a verifier reveals
)

const (
	requestSize = 4
	// maxAnswers is how often the same is handed to the same member: an answer may be lost.
	maxAnswers = 3
	// keptShown is of how many steps the own evidence, and reports, are kept.
	keptShown = 12
)

// ErrRefused says that somebody may not ask, or not yet.
var ErrRefused = errors.New("not for this member")

// Shown is what a member shows of its own results and verdicts. The loop fills it, the network's
// goroutines read it.
type Shown struct {
	mu       sync.Mutex
	evidence map[uint32]*shown // by the step of the result
	reports  map[uint32][]byte // by the step of the round in which it verified
}

type shown struct {
	bytes    []byte
	may      map[identity.ID]bool
	answered map[identity.ID]int
}

// NewShown returns one that has nothing.
func NewShown() *Shown {
	return &Shown{evidence: make(map[uint32]*shown), reports: make(map[uint32][]byte)}
}

// Serve answers the requests of peers.
func (s *Shown) Serve(network exchange.Requests) {
	network.Handle(OpeningProtocol, requestSize, s.answerOpening)
	network.Handle(ReportProtocol, requestSize, s.answerReport)
}

// Keep keeps the evidence of the own result of a step.
func (s *Shown) Keep(step uint32, evidence []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(step).bytes = evidence
	forgetOld(s.evidence, step)
}

// KeepReport keeps the own report of a round, which whoever asks may have.
func (s *Shown) KeepReport(step uint32, report []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports[step] = report
	forgetOld(s.reports, step)
}

func forgetOld[V any](of map[uint32]V, newest uint32) {
	for step := range of {
		if step+keptShown <= newest {
			delete(of, step)
		}
	}
}

// Evidence returns that of a step, or nil.
func (s *Shown) Evidence(step uint32) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.evidence[step]; e != nil {
		return e.bytes
	}
	return nil
}

// Report returns that of a round, or nil.
func (s *Shown) Report(step uint32) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports[step]
}

// Allow lets a member ask for the evidence of a step.
func (s *Shown) Allow(step uint32, who identity.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(step).may[who] = true
}

func (s *Shown) of(step uint32) *shown {
	if s.evidence[step] == nil {
		s.evidence[step] = &shown{may: make(map[identity.ID]bool), answered: make(map[identity.ID]int)}
	}
	return s.evidence[step]
}

func (s *Shown) answerOpening(_ context.Context, from identity.ID, request []byte) ([]byte, error) {
	step, err := stepOf(request)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.evidence[step]
	switch {
	case e == nil || !e.may[from] || e.answered[from] >= maxAnswers:
		return nil, fmt.Errorf("opening of step %d: %w", step, ErrRefused)
	case e.bytes == nil:
		return nil, fmt.Errorf("opening of step %d: %w", step, ErrNotKept)
	}
	e.answered[from]++
	return e.bytes, nil
}

func (s *Shown) answerReport(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	step, err := stepOf(request)
	if err != nil {
		return nil, err
	}
	if report := s.Report(step); report != nil {
		return report, nil
	}
	return nil, fmt.Errorf("report of step %d: %w", step, ErrNotKept)
}

func stepOf(request []byte) (uint32, error) {
	if len(request) != requestSize {
		return 0, fmt.Errorf("%w: request of %d bytes, want %d", ErrMalformed, len(request), requestSize)
	}
	return binary.LittleEndian.Uint32(request), nil
}

// AskOpening asks a trainer for the evidence of its result of a step. What it answers is not read.
func AskOpening(ctx context.Context, network exchange.Requests, trainer identity.ID, step uint32, shapes audit.Shapes) ([]byte, error) {
	return network.Request(ctx, trainer, OpeningProtocol, binary.LittleEndian.AppendUint32(nil, step), MaxEvidenceSize(shapes))
}

// AskReport asks a verifier for what it reveals of its verdict of a round.
func AskReport(ctx context.Context, network exchange.Requests, verifier identity.ID, step uint32) (Report, error) {
	b, err := network.Request(ctx, verifier, ReportProtocol, binary.LittleEndian.AppendUint32(nil, step), MaxReportSize)
	if err != nil {
		return Report{}, err
	}
	return DecodeReport(b)
}
