package server

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

const (
	maxPushes = 64  // a client that is further behind gets its records from the disk
	markEach  = 256 // records between two known journal positions
	// maxDiskRecords limits the records in a frame that is read from the disk, in bytes. At 0.25
	// Mbit/s, an incompressible frame takes four seconds, half of frame.IdleTimeout.
	maxDiskRecords = 128 << 10
)

// logStream is the newest part of a run's log, for connections that follow it. It is immutable.
type logStream struct {
	index  uint64      // number of records
	size   int64       // bytes of the journal that contains them
	heads  []wire.Head // signed: at the starts of the newest rounds, and the newest
	window []byte      // compression window before the next push
	pushes []push      // newest last
	marks  []mark      // ascending
}

// push is a frame of records, packed once for all connections that have the records before it.
type push struct {
	from, to uint64
	frame    []byte
}

// mark maps a number of records to a position in the journal.
type mark struct {
	index  uint64
	offset int64
}

// beginLogStream returns the logStream of a run with an open journal.
func beginLogStream(s *store, key identity.Key) logStream {
	genesis := follow.Record{Kind: follow.KindGenesis, Genesis: s.log.Genesis()}.AppendTo(nil)
	behind := journal.First + int64(journal.EntryHead+len(genesis)+journal.EntryTail)
	c := logStream{index: s.log.Head().Index, size: s.journal.Size(), marks: []mark{{1, behind}}}
	if c.index > 1 {
		c.marks = append(c.marks, mark{c.index, c.size})
	}
	c.heads = signHeads(s.log, nil, key)
	return c
}

// signHeads returns signed heads for clients. It reuses the signatures in before.
func signHeads(log *follow.Follower, before []wire.Head, key identity.Key) []wire.Head {
	wanted := slices.Clone(log.Starts())
	if n := len(wanted); n == 0 || wanted[n-1].Index != log.Head().Index {
		wanted = append(wanted, log.Head())
	}
	for i, h := range wanted {
		if known := slices.IndexFunc(before, h.Same); known >= 0 {
			wanted[i] = before[known]
		} else {
			wanted[i] = h.Sign(key, log.Run())
		}
	}
	return wanted
}

// next returns the logStream after new records that are on the disk.
func (s logStream) next(log *follow.Follower, fresh [][]byte, size int64, key identity.Key) logStream {
	n := logStream{index: s.index, size: size, window: s.window, marks: s.marks, heads: signHeads(log, s.heads, key)}
	n.pushes = slices.Clone(s.pushes[max(0, len(s.pushes)-maxPushes+1):])
	var raw []byte
	from := s.index
	for i, record := range fresh {
		raw = frame.AppendRecord(raw, record)
		n.index++
		if last := i == len(fresh)-1; !last && len(raw)+len(fresh[i+1])+8 <= frame.MaxRecordsSize {
			continue
		}
		records := frame.Records{First: from, Raw: raw}
		if i == len(fresh)-1 {
			records.Heads = slices.DeleteFunc(slices.Clone(n.heads), func(h wire.Head) bool { return h.Index <= s.index })
		}
		n.pushes = append(n.pushes, push{from, n.index, frame.Append(nil, frame.TypeRecords, records.AppendTo(nil, n.window))})
		n.window = frame.Slide(n.window, raw)
		raw, from = nil, n.index
	}
	if newest := n.marks[len(n.marks)-1]; n.index-newest.index >= markEach {
		n.marks = append(n.marks, mark{n.index, size})
	}
	return n
}

// since returns the pushes with the records after index, if they are in memory.
func (s *logStream) since(index uint64) (pushes []push, ok bool) {
	at := slices.IndexFunc(s.pushes, func(p push) bool { return p.from == index })
	if at < 0 {
		return nil, index == s.index
	}
	return s.pushes[at:], true
}

// read emits the payloads of frames with all records after index, from the journal, and then the
// window. The last frame of records contains the heads.
func (s *logStream) read(j io.ReaderAt, index uint64, emit func(kind frame.Type, payload []byte) error) error {
	if err := s.stretch(j, index, s.index, s.heads, emit); err != nil {
		return err
	}
	return emit(frame.TypeWindow, frame.AppendWindow(nil, s.window))
}

// readCertified is like read, for a newcomer. It skips the log between the run's first epoch and the
// newest certified epoch.
func (s *logStream) readCertified(j io.ReaderAt, links []link, base []byte, emit func(kind frame.Type, payload []byte) error) error {
	if len(links) < 2 || links[len(links)-1].cert.Index > s.index {
		return s.read(j, 1, emit)
	}
	if err := s.stretch(j, 1, links[0].cert.Index, nil, emit); err != nil {
		return err
	}
	for _, l := range links[1:] {
		if err := emit(frame.TypeCertificate, l.cert.AppendTo(nil)); err != nil {
			return err
		}
	}
	if err := emit(frame.TypeBase, base); err != nil {
		return err
	}
	newest := links[len(links)-1]
	from := *s
	from.marks = []mark{{newest.cert.Index, newest.offset}}
	return from.read(j, newest.cert.Index, emit)
}

// stretch emits the payloads of frames with the records from index to until.
func (s *logStream) stretch(j io.ReaderAt, index, until uint64, heads []wire.Head, emit func(kind frame.Type, payload []byte) error) error {
	nearest, _ := slices.BinarySearchFunc(s.marks, index, func(m mark, index uint64) int { return cmp.Compare(m.index, index+1) })
	if nearest == 0 {
		return fmt.Errorf("the log has no position after %d records", index)
	}
	m := s.marks[nearest-1]
	source := bufio.NewReader(io.NewSectionReader(j, m.offset, s.size-m.offset))
	records := frame.Records{First: index}
	at := index
	for n := m.index; n < until; n++ {
		record, err := readEntry(source)
		if err != nil {
			return fmt.Errorf("read record %d: %w", n, err)
		}
		if n < index {
			continue
		}
		if len(records.Raw) > 0 && len(records.Raw)+len(record)+8 > maxDiskRecords {
			payload := records.AppendTo(nil, nil)
			records = frame.Records{First: at} // emit may wait for the client: keep only the payload meanwhile
			if err := emit(frame.TypeRecords, payload); err != nil {
				return err
			}
		}
		records.Raw = frame.AppendRecord(records.Raw, record)
		at++
	}
	records.Heads = heads
	return emit(frame.TypeRecords, records.AppendTo(nil, nil))
}

// readEntry reads the payload of a journal's next entry, which was verified when it was written.
func readEntry(r io.Reader) ([]byte, error) {
	var head [journal.EntryHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := journal.PayloadSize(head[:])
	if size > journal.MaxPayload {
		return nil, journal.ErrTooLarge
	}
	entry := make([]byte, size+journal.EntryTail)
	if _, err := io.ReadFull(r, entry); err != nil {
		return nil, err
	}
	return entry[:size], nil
}

// readSign processes a member's signature for an epoch.
func (c *connection) readSign(payload []byte) error {
	signed, err := frame.DecodeSign(payload)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	certified, err := c.host.certs.sign(c.id, signed.Index, signed.Signature)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if certified {
		c.host.saveCerts()
	}
	return nil
}
