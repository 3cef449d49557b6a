package wire

import (
	"crypto/sha256"

	"github.com/psyche-go/psyche/base/identity"
)

// runDomain separates the hashes of runs from all other hashes.
const runDomain = "psyche/run/v1"

// HostedRun returns the hash that identifies a run on a server in all signed messages, given the
// run's signed genesis.
func HostedRun(genesis []byte) [32]byte {
	hash := sha256.Sum256(genesis)
	return sha256.Sum256(append([]byte(runDomain), hash[:]...))
}

// ChainRun is like HostedRun, for a run on a chain. program and account are the keys of the program and
// of the run's account.
func ChainRun(program, account [32]byte) [32]byte {
	return sha256.Sum256(append(append([]byte(runDomain), program[:]...), account[:]...))
}

// headFieldsSize is the size in bytes of a head in an announcement.
const headFieldsSize = 8 + 32 + identity.SignatureSize

// HeadSize is the size in bytes of a head.
const HeadSize = headFieldsSize + 4

// Head is the state of a run's log, as signed by the run's host. Two signed heads of one run that
// have the same index or the same step but different hashes prove that the host showed two
// histories.
type Head struct {
	Index     uint64   // number of records, at least 1
	Step      uint32   // of the round that the newest record started; 0 if it started none
	Hash      [32]byte // of the newest record, and thereby of all records
	Signature [identity.SignatureSize]byte
}

// signed returns the bytes that the signature covers.
func (h Head) signed(run [32]byte) []byte {
	b := append([]byte(nil), run[:]...)
	b = le.AppendUint64(b, h.Index)
	b = le.AppendUint32(b, h.Step)
	return append(b, h.Hash[:]...)
}

// Sign returns the head with the signature of the run's host.
func (h Head) Sign(host identity.Key, run [32]byte) Head {
	h.Signature = host.Sign(domainHead, h.signed(run))
	return h
}

// Verify reports whether the run's host signed the head.
func (h Head) Verify(host identity.ID, run [32]byte) bool {
	return identity.Verify(host, domainHead, h.signed(run), h.Signature)
}

// Same reports whether two heads are equal apart from their signatures.
func (h Head) Same(other Head) bool {
	return h.Index == other.Index && h.Step == other.Step && h.Hash == other.Hash
}

// Contradicts reports whether two heads cannot belong to one history.
func (h Head) Contradicts(other Head) bool {
	if h.Index == other.Index {
		return h.Hash != other.Hash || h.Step != other.Step
	}
	return h.Step != 0 && h.Step == other.Step
}

// AppendTo appends the bytes of the head.
func (h Head) AppendTo(b []byte) []byte {
	c := coder{writes: true, bytes: b}
	c.head(&h)
	return c.bytes
}

// DecodeHead decodes the output of AppendTo. The error wraps errMalformed.
func DecodeHead(b []byte) (h Head, err error) {
	c := coder{rest: b}
	c.head(&h)
	c.check(h.Index > 0, "head with index 0")
	return h, c.end()
}

func (c *coder) head(h *Head) {
	c.uint64(&h.Index, "index")
	c.uint32(&h.Step, "step")
	c.move(h.Hash[:], "hash")
	c.move(h.Signature[:], "signature")
}
