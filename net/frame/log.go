package frame

import "encoding/binary"

// MaxLogPart is the maximum number of bytes of the journal in one Log frame.
const MaxLogPart = 256 << 10

// ReadLog requests the bytes of the run's journal from Offset on.
type ReadLog struct {
	Offset uint64
}

// AppendTo appends the payload of the frame.
func (r ReadLog) AppendTo(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, r.Offset) }

// DecodeReadLog reads the payload of a ReadLog.
func DecodeReadLog(payload []byte) (ReadLog, error) {
	d := decoder{rest: payload}
	r := ReadLog{Offset: d.uint64()}
	return r, d.end("read-log")
}

// ReadModel requests the bytes of a model from Offset on. It is answered like a ReadLog, with a Model frame.
type ReadModel struct {
	Offset uint64
	Digest [32]byte // of a model that the run recorded; zero: the run's first model
}

// AppendTo appends the payload of the frame.
func (r ReadModel) AppendTo(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, r.Offset), r.Digest[:]...)
}

// DecodeReadModel reads the payload of a ReadModel.
func DecodeReadModel(payload []byte) (ReadModel, error) {
	d := decoder{rest: payload}
	r := ReadModel{Offset: d.uint64()}
	copy(r.Digest[:], d.bytes(len(r.Digest)))
	return r, d.end("read-model")
}

// Log is the response to a ReadLog.
type Log struct {
	Offset uint64 // of Part
	Size   uint64 // current size of the whole journal; 0 if the host keeps none
	Part   []byte // empty at the end of the journal
}

// appendTo appends the payload of the frame.
func (l Log) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, l.Offset)
	b = binary.LittleEndian.AppendUint64(b, l.Size)
	return append(b, l.Part...)
}

// PartHead returns the start of the frame of a Log, up to its Part, or of a Model, which has the
// same form. part is the size of Part.
func PartHead(of Type, offset, size uint64, part int) []byte {
	head := Append(nil, of, Log{Offset: offset, Size: size}.appendTo(nil))
	binary.BigEndian.PutUint32(head, uint32(len(head)-lengthSize+part))
	return head
}

// DecodeLog reads the payload of a Log. Part aliases it.
func DecodeLog(payload []byte) (Log, error) {
	d := decoder{rest: payload}
	l := Log{Offset: d.uint64(), Size: d.uint64()}
	l.Part = d.bytes(min(len(d.rest), MaxLogPart))
	return l, d.end("log")
}
