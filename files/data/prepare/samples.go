package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/data/preprocessed"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/walk"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// SampleOptions selects the conversations for samples, and configures the samples.
type SampleOptions struct {
	Paths     []string // files of JSON lines, or *.json with an array, which may be compressed, or folders of these files
	Hidden    bool     // also read files and folders in folders whose names walk.Hidden reports
	Output    string   // folder to write; it must not contain samples
	Strict    bool     // refuse unread keys instead of counting them
	SeqLen    int      // maximum tokens of a sample
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template
	Tokens    map[string]string // tokens that the template can use
	Space     diskspace.Probe   // of the output folder; nil: diskspace.Of
}

// Samples reports the result of Converse.
type Samples struct {
	Samples, Conversations int64
	Tokens, Learned        int64 // tokens in all samples; tokens that are trained on

	Long, Unlearned, Refused int64 // conversations left out: longer than a sample, without an answer, or refused
	Refusal                  error // reason for the first refusal

	Unread Unread      // unread keys of conversations
	Met    walk.Counts // counts of the walk through folders
	Others int         // files in folders that were not read
}

// samplesFile is the name of the file that Converse writes.
const samplesFile = "data-00000.parquet"

// sampleRow is a sample as package preprocessed reads it.
type sampleRow struct {
	Inputs    []int32 `parquet:"inputs,list,zstd"`
	Labels    []int32 `parquet:"labels,list,zstd"`
	Positions []int32 `parquet:"position_ids,list,zstd"`
	Lengths   []int64 `parquet:"sequence_lengths,list,zstd"`
}

// groupTokens is the number of tokens after which a new row group starts.
const groupTokens = 4 << 20

// Converse writes samples of conversations, in which only the assistant's texts are learned. It
// packs as many conversations into each sample as fit, in their order. It counts and leaves out
// conversations that are longer than a sample, that have no answer, or whose assistant tokens
// cannot be determined.
func Converse(ctx context.Context, o SampleOptions) (made Samples, err error) {
	if o.SeqLen < 2 || o.SeqLen > tokens.MaxSeqLen {
		return made, fmt.Errorf("make samples: sequence length %d, want 2 to %d", o.SeqLen, tokens.MaxSeqLen)
	}
	if there, err := filepath.Glob(filepath.Join(o.Output, "*.parquet")); err != nil || len(there) > 0 {
		return made, errors.Join(fmt.Errorf("make samples: %s already contains %d Parquet files, which runs would read as samples; choose another folder", o.Output, len(there)), err)
	}
	paths, others, met, err := o.files()
	if err != nil {
		return made, fmt.Errorf("make samples: %w", err)
	}
	// The size of the samples is not known yet, so the disk must only have some free space.
	if err := diskspace.Check(o.Output, "the samples", 1, o.Space); err != nil {
		return made, fmt.Errorf("make samples: %w, or choose another output folder", err)
	}
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return made, fmt.Errorf("make samples: %w", err)
	}
	file, err := os.CreateTemp(o.Output, ".samples-*")
	if err != nil {
		return made, fmt.Errorf("make samples: %w", err)
	}
	p := &packer{o: o, to: parquet.NewGenericWriter[sampleRow](file)}
	p.made.Met, p.made.Others, p.made.Unread = met, others, Unread{}
	for _, path := range paths {
		if err = p.file(ctx, path); err != nil {
			break
		}
	}
	if err == nil {
		err = p.finish()
	}
	if err == nil && p.made.Samples == 0 {
		err = fmt.Errorf("none of the %d conversations is usable: %d are longer than %d tokens, %d have no answer to learn, %d were refused; unknown keys: %v: %w",
			p.made.Conversations, p.made.Long, o.SeqLen, p.made.Unlearned, p.made.Refused, p.made.Unread, errors.Join(p.made.Refusal, errNoSamples))
	}
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(o.Output, samplesFile))
	}
	if err != nil {
		err = diskspace.Explain(err, "nothing was kept; remove other files, and run the command again")
		return p.made, errors.Join(fmt.Errorf("make samples: %w", err), os.Remove(file.Name()))
	}
	return p.made, nil
}

// files returns the paths of all files to read, and the number of files in folders that are not
// read. The files of a folder are in natural order.
func (o SampleOptions) files() (paths []string, others int, met walk.Counts, err error) {
	for _, name := range o.Paths {
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			paths = append(paths, name)
			continue
		}
		found, err := walk.Files(name, walk.Options{Hidden: o.Hidden})
		if err != nil {
			return nil, 0, met, err
		}
		slices.SortFunc(found.Files, func(a, b walk.File) int { return tokens.Compare(a.Inside, b.Inside) })
		before := len(paths)
		for _, file := range found.Files {
			read, err := holdsConversations(file.Path)
			if err != nil {
				return nil, 0, met, fmt.Errorf("%s: %w", file.Path, err)
			}
			if read {
				paths = append(paths, file.Path)
			} else {
				others++
			}
		}
		if met.Add(found.Counts); len(paths) == before {
			return nil, others, met, fmt.Errorf("%s has no .jsonl or .ndjson files, and no .json files with several objects (%d other files%s); %w", name, others, found.Counts, errTables)
		}
	}
	return paths, others, met, nil
}

var errNoSamples = errors.New("no samples")

// packer packs conversations into samples.
type packer struct {
	o       SampleOptions
	to      *parquet.GenericWriter[sampleRow]
	row     sampleRow
	grouped int // tokens of the row group
	made    Samples
}

// file reads a file's conversations.
func (p *packer) file(ctx context.Context, path string) error {
	from, err := openConversations(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer func() { _ = from.Close() }() // it was only read
	before := p.made.Conversations
	for {
		text, err := from.conversation()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		in, err := talks{p.o.Strict, p.made.Unread}.conversation(text)
		if _, isLines := from.(*lines); err != nil && isLines && notLines(text, p.made.Conversations == before) {
			err = fmt.Errorf("%w; rename the file to end in .json to read it object by object (%w)", errNotLines, err)
		}
		if err == nil && in.Messages != nil {
			err = p.add(fmt.Sprintf("%s, %s", path, from.place()), in)
		}
		if err != nil {
			return fmt.Errorf("%s, %s: %w", path, from.place(), err)
		}
	}
}

// add adds a conversation to the current sample, or to the next sample.
func (p *packer) add(where string, in chat.Input) error {
	p.made.Conversations++
	in.Tokens = p.o.Tokens
	ids, learned, err := p.o.Template.EncodeForTraining(p.o.Tokenizer, in)
	switch {
	case errors.Is(err, chat.ErrTurns), errors.Is(err, chat.ErrControl), errors.Is(err, chat.ErrTemplate):
		if p.made.Refused++; p.made.Refusal == nil {
			p.made.Refusal = fmt.Errorf("%s: %w", where, err)
		}
		return nil
	case err != nil:
		return err
	case len(ids) > p.o.SeqLen:
		p.made.Long++
		return nil
	}
	labels, count := make([]int32, len(ids)), int64(0)
	for i := range ids {
		if labels[i] = preprocessed.IgnoreLabel; i > 0 && learned[i] { // no token of the conversation predicts its first token
			labels[i] = ids[i]
			count++
		}
	}
	if count == 0 {
		p.made.Unlearned++
		return nil
	}
	if len(p.row.Inputs)+len(ids) > p.o.SeqLen {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.row.Inputs, p.row.Labels = append(p.row.Inputs, ids...), append(p.row.Labels, labels...)
	p.row.Positions = append(p.row.Positions, tokens.PackedPositions([]int{len(ids)})...)
	p.row.Lengths = append(p.row.Lengths, int64(len(ids)))
	p.made.Tokens, p.made.Learned = p.made.Tokens+int64(len(ids)), p.made.Learned+count
	return nil
}

// flush writes the current sample, if there is one.
func (p *packer) flush() error {
	if len(p.row.Inputs) == 0 {
		return nil
	}
	if _, err := p.to.Write([]sampleRow{p.row}); err != nil {
		return err
	}
	p.made.Samples++
	if p.grouped += len(p.row.Inputs); p.grouped >= groupTokens {
		p.grouped = 0
		if err := p.to.Flush(); err != nil {
			return err
		}
	}
	p.row = sampleRow{}
	return nil
}

func (p *packer) finish() error { return errors.Join(p.flush(), p.to.Close()) }
