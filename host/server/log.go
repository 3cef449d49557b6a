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
	maxPushes = 64  // that a client may be behind before it gets records from the disk
	markEach  = 256 // records between two places of the journal that are known
	// maxDiskRecords bounds the records of a frame that is read from the disk, in bytes. Over 0.25 Mbit/s a frame that
	// does not compress takes four seconds, half of frame.IdleTimeout.
	maxDiskRecords = 128 << 10
)

// logStream is what a run's connections send of its log to its followers. It is never changed.
type logStream struct {
	index  uint64      // number of records
	size   int64       // bytes of the journal that has them
	heads  []wire.Head // signed: at the starts of the newest rounds, then the newest
	window []byte      // what the next push needs of the records before it
	pushes []push      // newest last
	marks  []mark      // ascending
}

// push is a frame with records, packed once for all connections that have the records before.
type push struct {
	from, to uint64
	frame    []byte
}

// mark is a place of the journal, behind so many records.
type mark struct {
	index  uint64
	offset int64
}

// beginLogStream returns the logStream of a run whose log a server has taken up.
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

// signHeads signs the heads that a client should know, those anew that were not signed before.
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

// next returns the logStream after records that are on the disk.
func (c logStream) next(log *follow.Follower, fresh [][]byte, size int64, key identity.Key) logStream {
	n := logStream{index: c.index, size: size, window: c.window, marks: c.marks, heads: signHeads(log, c.heads, key)}
	n.pushes = slices.Clone(c.pushes[max(0, len(c.pushes)-maxPushes+1):])
	var raw []byte
	from := c.index
	for i, record := range fresh {
		raw = frame.AppendRecord(raw, record)
		n.index++
		if last := i == len(fresh)-1; !last && len(raw)+len(fresh[i+1])+8 <= frame.MaxRecordsSize {
			continue
		}
		records := frame.Records{First: from, Raw: raw}
		if i == len(fresh)-1 {
			records.Heads = slices.DeleteFunc(slices.Clone(n.heads), func(h wire.Head) bool { return h.Index <= c.index })
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
func (c *logStream) since(index uint64) (pushes []push, ok bool) {
	at := slices.IndexFunc(c.pushes, func(p push) bool { return p.from == index })
	if at < 0 {
		return nil, index == c.index
	}
	return c.pushes[at:], true
}

// read hands out the payloads of frames with all records behind a place, from the journal, and then
// the window. The last of the former has the heads.
func (c *logStream) read(j io.ReaderAt, index uint64, emit func(kind frame.Type, payload []byte) error) error {
	if err := c.stretch(j, index, c.index, c.heads, emit); err != nil {
		return err
	}
	return emit(frame.TypeWindow, frame.AppendWindow(nil, c.window))
}

// readCertified is read for a newcomer, who gets to the newest certified epoch without the log between
// the run's first one and that.
func (c *logStream) readCertified(j io.ReaderAt, links []link, base []byte, emit func(kind frame.Type, payload []byte) error) error {
	if len(links) < 2 || links[len(links)-1].cert.Index > c.index {
		return c.read(j, 1, emit)
	}
	if err := c.stretch(j, 1, links[0].cert.Index, nil, emit); err != nil {
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
	from := *c
	from.marks = []mark{{newest.cert.Index, newest.offset}}
	return from.read(j, newest.cert.Index, emit)
}

// stretch hands out the payloads of frames with the records between two places.
func (c *logStream) stretch(j io.ReaderAt, index, until uint64, heads []wire.Head, emit func(kind frame.Type, payload []byte) error) error {
	nearest, _ := slices.BinarySearchFunc(c.marks, index, func(m mark, index uint64) int { return cmp.Compare(m.index, index+1) })
	if nearest == 0 {
		return fmt.Errorf("the log has no place behind %d records", index)
	}
	m := c.marks[nearest-1]
	source := bufio.NewReader(io.NewSectionReader(j, m.offset, c.size-m.offset))
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

// readSign takes a member's word that an epoch began as the log says.
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
