package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Print is what a verifier's gradient of a chunk is like: its length, and its projection on a
// direction that the seed draws. Only who has the gradient knows it.
type Print struct {
	Chunk              uint32
	Length, Projection float32
}

// Prints returns those of an exam. A verifier commits to them (Seal) before the trainer opens
// anything: what is opened says what an honest trainer's gradient was, to anybody.
func (e *Exam) Prints(seed uint64) []Print {
	prints := make([]Print, len(e.Chunks))
	for i, chunk := range e.Chunks {
		update := wide(e.Updates[i])
		prints[i] = Print{
			Chunk: chunk, Length: float32(length(update)),
			Projection: float32(dot(update, e.direction(seed, chunk, len(update)))),
		}
	}
	return prints
}

// direction has an element of 1 or −1 for each of a chunk.
func (e *Exam) direction(seed uint64, chunk uint32, size int) []float64 {
	about := e.Trainer
	binary.LittleEndian.PutUint32(about[:], binary.LittleEndian.Uint32(about[:])^chunk)
	s := newStream("direction", seed, e.Step, about)
	signs := make([]float64, size)
	var word uint64
	for i := range signs {
		if i%64 == 0 {
			word = s.next()
		}
		signs[i] = 1 - 2*float64(word>>(i%64)&1)
	}
	return signs
}

// Prints of which a smaller share than PrintsShare are alike within PrintsWithin are not of one
// gradient: those of honest verifiers were in 91 % of the chunks, those of another batch in 19 %.
const (
	PrintsWithin = 0.05
	PrintsShare  = 0.6

	// AccusedBeyond takes the place of PrintsWithin for who accuses.
	AccusedBeyond = doubt * PrintsWithin
)

// Alike returns the share of chunks of which two verifiers have the same print, each number
// within a part of the longer one's length. Prints of different chunks are alike nowhere.
func Alike(a, b []Print, within float64) float64 {
	if len(a) != len(b) || len(a) == 0 {
		return 0
	}
	alike := 0
	for i := range a {
		room := within * math.Max(float64(a[i].Length), float64(b[i].Length))
		near := func(x, y float32) bool { return math.Abs(float64(x)-float64(y)) <= room }
		if a[i].Chunk == b[i].Chunk && near(a[i].Length, b[i].Length) && near(a[i].Projection, b[i].Projection) {
			alike++
		}
	}
	return float64(alike) / float64(len(a))
}

// Verdict is what a verifier says of a trainer's result.
type Verdict struct {
	Run      [32]byte // SHA-256 of the run id
	Step     uint32   // of the result
	Seed     uint64   // that drew the audit
	Trainer  [32]byte
	Verifier [32]byte
	Result   [32]byte // commitment of the result: the BLAKE3 hash of its blob
	Outcome  Outcome
	Fault    Fault
	Error    float32
	Chunks   []Said // one for each chunk of the challenge
}

// Said is a verdict's part about a chunk.
type Said struct {
	Print
	Error float32
}

const (
	verdictVersion = 1
	verdictHeader  = 1 + 32 + 4 + 8 + 3*32 + 1 + 1 + 4 + 2
	saidSize       = 4 * 4
)

// Verdict puts a report into words.
func (e *Exam) Verdict(run, verifier, result [32]byte, seed uint64, r Report, l Limits) Verdict {
	v := Verdict{
		Run: run, Step: e.Step, Seed: seed, Trainer: e.Trainer, Verifier: verifier, Result: result,
		Outcome: r.Judge(l), Fault: r.Fault, Error: said(r.Error),
	}
	for i, p := range e.Prints(PrintSeed(seed, verifier)) {
		s := Said{Print: p}
		if i < len(r.Chunks) {
			s.Error = said(r.Chunks[i].Error)
		}
		v.Chunks = append(v.Chunks, s)
	}
	return v
}

// said rounds an error to what a verdict can hold.
func said(e float64) float32 { return float32(min(e, math.MaxFloat32)) }

// Encode returns the bytes of a verdict:
//
//	version u8 = 1 ‖ run [32] ‖ step u32 ‖ seed u64 ‖ trainer [32] ‖ verifier [32] ‖ result [32] ‖
//	outcome u8 ‖ fault u8 ‖ error f32 ‖ chunks u16, then for each
//	chunk u32 ‖ length f32 ‖ projection f32 ‖ error f32
func (v Verdict) Encode() ([]byte, error) {
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("encode verdict: %w", err)
	}
	b := append(make([]byte, 0, verdictHeader+len(v.Chunks)*saidSize), verdictVersion)
	b = append(b, v.Run[:]...)
	b = binary.LittleEndian.AppendUint32(b, v.Step)
	b = binary.LittleEndian.AppendUint64(b, v.Seed)
	b = append(b, v.Trainer[:]...)
	b = append(b, v.Verifier[:]...)
	b = append(b, v.Result[:]...)
	b = append(b, byte(v.Outcome), byte(v.Fault))
	b = appendFloat(b, v.Error)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(v.Chunks)))
	for _, c := range v.Chunks {
		b = appendPrint(b, c.Print)
		b = appendFloat(b, c.Error)
	}
	return b, nil
}

func appendPrint(b []byte, p Print) []byte {
	b = binary.LittleEndian.AppendUint32(b, p.Chunk)
	return appendFloat(appendFloat(b, p.Length), p.Projection)
}

func appendFloat(b []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
}

func (v Verdict) check() error {
	switch {
	case outcomeNames[v.Outcome] == "" || int(v.Fault) >= len(faultNames):
		return fmt.Errorf("%w: outcome %d, fault %d", ErrInvalid, v.Outcome, v.Fault)
	case (v.Outcome == Faulty) != (v.Fault != FaultNone):
		return fmt.Errorf("%w: outcome %s with fault %s", ErrInvalid, v.Outcome, v.Fault)
	case len(v.Chunks) < 1 || len(v.Chunks) > MaxChunks:
		return fmt.Errorf("%w: %d chunks, want 1 to %d", ErrInvalid, len(v.Chunks), MaxChunks)
	case !finite(v.Error) || v.Error < 0:
		return fmt.Errorf("%w: error %v", ErrInvalid, v.Error)
	}
	for i, c := range v.Chunks {
		if i > 0 && c.Chunk <= v.Chunks[i-1].Chunk {
			return fmt.Errorf("%w: chunk %d after chunk %d", ErrInvalid, c.Chunk, v.Chunks[i-1].Chunk)
		}
		if !finite(c.Length) || !finite(c.Projection) || !finite(c.Error) || c.Length < 0 || c.Error < 0 {
			return fmt.Errorf("%w: chunk %d: length %v, projection %v, error %v", ErrInvalid, c.Chunk, c.Length, c.Projection, c.Error)
		}
	}
	return nil
}

// DecodeVerdict reads exactly what Encode writes.
func DecodeVerdict(b []byte) (Verdict, error) {
	switch {
	case len(b) < verdictHeader:
		return Verdict{}, fmt.Errorf("decode verdict: %w: %d bytes, at least %d", ErrInvalid, len(b), verdictHeader)
	case b[0] != verdictVersion:
		return Verdict{}, fmt.Errorf("decode verdict: %w: version %d, this program reads %d", ErrInvalid, b[0], verdictVersion)
	}
	r := reader{bytes: b[1:]}
	v := Verdict{Run: [32]byte(r.take(32)), Step: r.u32()}
	v.Seed = binary.LittleEndian.Uint64(r.take(8))
	v.Trainer, v.Verifier, v.Result = [32]byte(r.take(32)), [32]byte(r.take(32)), [32]byte(r.take(32))
	kinds := r.take(2)
	v.Outcome, v.Fault, v.Error = Outcome(kinds[0]), Fault(kinds[1]), r.float()
	count := int(r.u16())
	if len(r.bytes) != count*saidSize || count > MaxChunks {
		return Verdict{}, fmt.Errorf("decode verdict: %w: %d bytes for %d chunks", ErrInvalid, len(r.bytes), count)
	}
	for range count {
		v.Chunks = append(v.Chunks, Said{Print{r.u32(), r.float(), r.float()}, r.float()})
	}
	if err := v.check(); err != nil {
		return Verdict{}, fmt.Errorf("decode verdict: %w", err)
	}
	return v, nil
}

func (r *reader) float() float32 { return math.Float32frombits(r.u32()) }

// Domains of Seal.
const (
	SealPrints  = "psyche/prints/v1"
	SealVerdict = "psyche/verdict/v1"
)

// Seal commits to bytes that are revealed later, with a salt that nobody can guess.
func Seal(domain string, salt [32]byte, body []byte) [32]byte {
	b := append([]byte(domain), salt[:]...)
	return sha256.Sum256(append(b, body...))
}

// EncodePrints returns what is sealed of prints: chunk u32 ‖ length f32 ‖ projection f32 of each.
func EncodePrints(prints []Print) []byte {
	b := make([]byte, 0, 12*len(prints))
	for _, p := range prints {
		b = appendPrint(b, p)
	}
	return b
}
