package tokens

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/base/filestart"
)

// StartSize is the number of first bytes of a file that Begin needs, or the whole file if it is
// shorter.
const StartSize = 4096

// numpyMagic is the start of a file of numpy's save.
const numpyMagic = "\x93NUMPY"

// header is the header of llm.c before the tokens: 256 numbers of 32 bits. The first three are a
// mark, a version and the number of tokens.
type header struct {
	mark, version uint32
	tokenSize     int
}

// headers contains the known headers: tokens of GPT-2 and of Llama 3.
var headers = []header{{20240520, 1, 2}, {20240801, 7, 4}}

const headerSize = 256 * 4

// ReadHeader returns the properties in the llm.c header at the start of a file of size bytes.
func ReadHeader(name string, start []byte, size int64) (s Stated, found bool, err error) {
	if len(start) < 12 {
		return Stated{}, false, nil
	}
	mark, version := binary.LittleEndian.Uint32(start), binary.LittleEndian.Uint32(start[4:])
	for _, h := range headers {
		if mark != h.mark || version != h.version {
			continue
		}
		count := uint64(binary.LittleEndian.Uint32(start[8:]))
		if want := headerSize + count*uint64(h.tokenSize); uint64(size) != want {
			return Stated{}, false, fmt.Errorf("token file %s: the llm.c header declares %d tokens (%d bytes with the header), but the file has %d bytes; get the file again if it is truncated", name, count, want, size)
		}
		return Stated{By: "its llm.c header", TokenSize: h.tokenSize, Bytes: size}, true, nil
	}
	return Stated{}, false, nil
}

// Begin checks the first bytes of a file and returns its tokens, without a header of llm.c. If the
// tokens would be read wrongly, it returns an error.
func Begin(f File, start []byte, o Options) (File, error) {
	if len(start) >= len(numpyMagic) && string(start[:len(numpyMagic)]) == numpyMagic {
		return nil, fmt.Errorf("open token file %s: %w, which would be misread as tokens; write the array with tofile", f.Name(), ErrNumpyHeader)
	}
	if err := filestart.Pointer(start); err != nil {
		return nil, fmt.Errorf("open token file %s: %w", f.Name(), err)
	}
	stated, found, err := ReadHeader(f.Name(), start, f.Size())
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	if found {
		if err := stated.Check(f.Name(), f.Size(), o.TokenSize); err != nil {
			return nil, err
		}
		return body{f}, nil
	}
	if o.Claim == OfFiles {
		return f, nil
	}
	if err := checkWidth(f.Name(), start, o.TokenSize); err != nil {
		return nil, fmt.Errorf("open token file %s: %w", f.Name(), err)
	}
	return f, nil
}

// body is a file without its header.
type body struct{ File }

// Size implements File.
func (b body) Size() int64 { return b.File.Size() - headerSize }

// ReadAt implements File.
func (b body) ReadAt(ctx context.Context, buffer []byte, offset int64) error {
	return b.File.ReadAt(ctx, buffer, offset+headerSize)
}
