package checkpoint

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/safetensors"
	"lukechampine.com/blake3"
)

// MaxManifestSize is the maximum size of an encoded manifest in bytes.
const MaxManifestSize = 16 << 20

// manifestMagic is the start of an encoded manifest. Its last byte is the version.
const manifestMagic = "psymf\x00\x00\x01"

// Entry is a file of a manifest.
type Entry struct {
	Name string
	Size uint64   // bytes
	Hash [32]byte // BLAKE3 of the content
}

// TensorEntry is a tensor of a manifest.
type TensorEntry struct {
	Name  string
	DType safetensors.DType
	Shape []int64
	Hash  [32]byte // BLAKE3 of the data
}

// Size returns the size of the tensor's data in bytes. The entry must be valid.
func (e TensorEntry) Size() uint64 {
	size, err := safetensors.Size(e.DType, e.Shape)
	if err != nil {
		panic("checkpoint: size of an invalid entry: " + err.Error())
	}
	return uint64(size)
}

// Manifest contains the hashes of all parts of a snapshot. Files and tensors are sorted by name.
type Manifest struct {
	Step    uint32
	Files   []Entry
	Tensors []TensorEntry
}

// Blob is one part of a snapshot.
type Blob struct {
	Hash [32]byte
	Size uint64
}

// Blobs returns the parts in the manifest without duplicates, files first.
func (m Manifest) Blobs() []Blob {
	seen := make(map[[32]byte]bool, len(m.Files)+len(m.Tensors))
	var blobs []Blob
	add := func(hash [32]byte, size uint64) {
		if !seen[hash] {
			seen[hash] = true
			blobs = append(blobs, Blob{hash, size})
		}
	}
	for _, e := range m.Files {
		add(e.Hash, e.Size)
	}
	for _, e := range m.Tensors {
		add(e.Hash, e.Size())
	}
	return blobs
}

// Digest returns the BLAKE3 hash of the encoded manifest. Equal digests mean equal models, bit for
// bit.
func (m Manifest) Digest() [32]byte { return blake3.Sum256(m.Encode()) }

// validate checks bounds, names and order.
func (m Manifest) validate() error {
	if len(m.Files) > maxFiles || len(m.Tensors) > maxTensors {
		return fmt.Errorf("%w: %d files and %d tensors, the limits are %d and %d",
			ErrInvalid, len(m.Files), len(m.Tensors), maxFiles, maxTensors)
	}
	for i, e := range m.Files {
		if !besideTensors(e.Name) {
			return fmt.Errorf("%w: file name %q does not belong to a Hugging Face model", ErrInvalid, e.Name)
		}
		if e.Size > MaxFileSize {
			return fmt.Errorf("%w: file %s has %d bytes, the limit is %d", ErrInvalid, e.Name, e.Size, MaxFileSize)
		}
		if i > 0 && m.Files[i-1].Name >= e.Name {
			return fmt.Errorf("%w: file %s is out of order or occurs twice", ErrInvalid, e.Name)
		}
	}
	for i, e := range m.Tensors {
		if err := checkTensorName(e.Name); err != nil {
			return err
		}
		if len(e.Shape) > maxRank {
			return fmt.Errorf("%w: tensor %s has %d dimensions, the limit is %d", ErrInvalid, e.Name, len(e.Shape), maxRank)
		}
		if _, err := safetensors.Size(e.DType, e.Shape); err != nil {
			return fmt.Errorf("%w: tensor %s: %w", ErrInvalid, e.Name, err)
		}
		if i > 0 && m.Tensors[i-1].Name >= e.Name {
			return fmt.Errorf("%w: tensor %s is out of order or occurs twice", ErrInvalid, e.Name)
		}
	}
	return nil
}

// Encode returns the canonical bytes of a valid manifest, little-endian: magic and version (8
// bytes), step u32, number of files u32, then per file name (u8 length), size u64, hash; number of
// tensors u32, then per tensor name (u8 length), dtype (u8 length, with the name used by
// safetensors), number of dimensions u8, dimensions u64 each, hash.
func (m Manifest) Encode() []byte {
	b := []byte(manifestMagic)
	b = binary.LittleEndian.AppendUint32(b, m.Step)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Files)))
	for _, e := range m.Files {
		b = appendText(b, e.Name)
		b = binary.LittleEndian.AppendUint64(b, e.Size)
		b = append(b, e.Hash[:]...)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Tensors)))
	for _, e := range m.Tensors {
		b = appendText(b, e.Name)
		b = appendText(b, string(e.DType))
		b = append(b, byte(len(e.Shape)))
		for _, dim := range e.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(dim))
		}
		b = append(b, e.Hash[:]...)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(append(b, byte(len(text))), text...)
}

// DecodeManifest decodes the output of Encode, and nothing else. The result is valid.
func DecodeManifest(b []byte) (Manifest, error) {
	if len(b) > MaxManifestSize {
		return Manifest{}, fmt.Errorf("%w: manifest has %d bytes, the limit is %d", ErrInvalid, len(b), MaxManifestSize)
	}
	d := decoder{rest: b}
	if string(d.take(len(manifestMagic))) != manifestMagic {
		return Manifest{}, fmt.Errorf("%w: not a checkpoint manifest, or an unsupported version", ErrInvalid)
	}
	m := Manifest{Step: d.uint32()}
	// The counts reserve no capacity: decoding with a false count ends at the first missing entry.
	for range d.uint32() {
		if d.short {
			break
		}
		m.Files = append(m.Files, Entry{Name: d.text(), Size: d.uint64(), Hash: d.hash()})
	}
	for range d.uint32() {
		if d.short {
			break
		}
		e := TensorEntry{Name: d.text(), DType: safetensors.DType(d.text())}
		for range d.uint8() {
			e.Shape = append(e.Shape, int64(d.uint64()))
		}
		e.Hash = d.hash()
		m.Tensors = append(m.Tensors, e)
	}
	if d.short {
		return Manifest{}, fmt.Errorf("%w: manifest is truncated", ErrInvalid)
	}
	if len(d.rest) > 0 {
		return Manifest{}, fmt.Errorf("%w: %d bytes follow the manifest", ErrInvalid, len(d.rest))
	}
	if err := m.validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// decoder takes values from the front of rest. After a missing value, short is true and every value
// is zero.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if len(d.rest) < n {
		d.short, d.rest = true, nil
		return make([]byte, min(n, 255))
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) uint8() uint8   { return d.take(1)[0] }
func (d *decoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }
func (d *decoder) hash() [32]byte { return [32]byte(d.take(32)) }
func (d *decoder) text() string   { return string(d.take(int(d.uint8()))) }

// Assemble builds the snapshot of a valid manifest. get returns the content that has the given
// hash. Assemble verifies the content, and returns an error that names it if it is wrong.
func (m Manifest) Assemble(get func(hash [32]byte, size uint64) ([]byte, error)) (Snapshot, error) {
	if err := m.validate(); err != nil {
		return Snapshot{}, err
	}
	fetch := func(name string, hash [32]byte, size uint64) ([]byte, error) {
		data, err := get(hash, size)
		if err != nil {
			return nil, fmt.Errorf("assemble checkpoint: %s: %w", name, err)
		}
		if uint64(len(data)) != size || blake3.Sum256(data) != hash {
			return nil, fmt.Errorf("assemble checkpoint: %s: %w: %d bytes do not match the hash %x", name, ErrInvalid, len(data), hash[:8])
		}
		return data, nil
	}
	s := Snapshot{Step: m.Step, Files: make([]File, len(m.Files)), Tensors: make([]safetensors.Tensor, len(m.Tensors))}
	for i, e := range m.Files {
		data, err := fetch(e.Name, e.Hash, e.Size)
		if err != nil {
			return Snapshot{}, err
		}
		s.Files[i] = File{Name: e.Name, Data: data}
	}
	for i, e := range m.Tensors {
		data, err := fetch(e.Name, e.Hash, e.Size())
		if err != nil {
			return Snapshot{}, err
		}
		s.Tensors[i] = safetensors.Tensor{Name: e.Name, DType: e.DType, Shape: slices.Clone(e.Shape), Data: data}
	}
	return s, nil
}
