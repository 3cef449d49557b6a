package local

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// resolveSize compares descriptions in other files, and headers, with the required token size. It
// replaces a presumed size and 0 by the described size, or by the usual one.
func (f *Folder) resolveSize(o *Options) error {
	presumed := o.TokenSize
	if o.Claim == tokens.Presumed {
		o.TokenSize = 0
	}
	if o.TokenSize == 0 && f.described != nil {
		o.TokenSize = f.described.tokenSize
	}
	for _, file := range f.files {
		all, err := stated(file)
		if err != nil {
			return err
		}
		file.said = f.described != nil || len(all) > 0
		for _, says := range all {
			o.TokenSize = cmp.Or(o.TokenSize, says.TokenSize)
			if err := says.Check(file.path, file.size, o.TokenSize); err != nil {
				return err
			}
		}
	}
	if o.TokenSize != 0 {
		return nil
	}
	first := f.files[0]
	if o.Claim == tokens.Presumed {
		o.TokenSize = presumed
		return tokens.CheckPresumed(first.path, first.size, o.VocabSize)
	}
	usual, err := tokens.AssumeSize(first.path, first.size, o.VocabSize)
	o.TokenSize, o.Claim = usual, tokens.OfLocation
	return err
}

// stated returns the properties of a token file in its descriptions and its header.
func stated(f *file) (all []tokens.Stated, err error) {
	for _, path := range tokens.Sidecars(f.path) {
		says, found, err := readSidecar(path)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, says)
		}
	}
	says, found, err := tokens.ReadHeader(f.path, f.start, f.size)
	if found {
		all = append(all, says)
	}
	return all, err
}

func readSidecar(path string) (s tokens.Stated, found bool, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return s, false, nil
	}
	opened, err := openFile(path)
	if err != nil {
		return s, false, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return tokens.ReadSidecar(context.Background(), opened)
}
