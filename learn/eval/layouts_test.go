package eval

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// layout is a data set as on the Hub: every column with its type, one row, the splits of every
// part, and the splits without answers.
type layout struct {
	columns  map[string]string // type by name: text, texts, int32, int64, choices
	row      map[string]any
	parts    []string // folders on the main branch
	splits   []string
	withheld string         // split without answers
	without  map[string]any // placeholder for the answers in that split
	converts []string       // parts on the branch of conversions
	prompt   string         // of the row
	choices  []string
	answer   int
	letter   string
}

func choices(texts, labels []string) map[string]any {
	return map[string]any{"text": texts, "label": labels}
}

var layouts = map[string]layout{
	"arc_challenge": {
		columns: map[string]string{"id": "text", "question": "text", "choices": "choices", "answerKey": "text"},
		row:     map[string]any{"id": "MCAS_1", "question": "Which?", "choices": choices([]string{"a", "b", "c"}, []string{"1", "2", "3"}), "answerKey": "2"},
		parts:   []string{"ARC-Challenge", "ARC-Easy"}, splits: []string{"train", "test", "validation"}, converts: []string{"ARC-Challenge", "ARC-Easy"},
		prompt: "Question: Which?\nAnswer:", choices: []string{"a", "b", "c"}, answer: 1,
	},
	"arc_easy": {
		columns: map[string]string{"id": "text", "question": "text", "choices": "choices", "answerKey": "text"},
		row:     map[string]any{"id": "Mercury_1", "question": "Which?", "choices": choices([]string{"a", "b", "c", "d", "e"}, []string{"A", "B", "C", "D", "E"}), "answerKey": "E"},
		parts:   []string{"ARC-Challenge", "ARC-Easy"}, splits: []string{"train", "test", "validation"}, converts: []string{"ARC-Challenge", "ARC-Easy"},
		prompt: "Question: Which?\nAnswer:", choices: []string{"a", "b", "c", "d", "e"}, answer: 4,
	},
	"boolq": {
		columns: map[string]string{"question": "text", "passage": "text", "idx": "int32", "label": "int64"},
		row:     map[string]any{"question": "is it", "passage": "It is.", "idx": int32(3), "label": int64(1)},
		parts:   []string{"axb", "boolq", "cb"}, splits: []string{"train", "validation", "test"}, converts: []string{"axb", "boolq", "cb"},
		withheld: "test", without: map[string]any{"label": int64(-1)},
		prompt: "It is.\nQuestion: is it?\nAnswer:", choices: []string{"no", "yes"}, answer: 1,
	},
	"hellaswag": {
		columns: map[string]string{
			"ind": "int32", "activity_label": "text", "ctx_a": "text", "ctx_b": "text", "ctx": "text", "endings": "texts",
			"source_id": "text", "split": "text", "split_type": "text", "label": "text",
		},
		row: map[string]any{
			"ind": int32(4), "activity_label": "Cooking", "ctx_a": "He stirs.", "ctx_b": "he", "ctx": "He stirs. he", "endings": []string{"a", "b", "c", "d"},
			"source_id": "activitynet~v_1", "split": "val", "split_type": "indomain", "label": "3",
		},
		parts: []string{"data"}, splits: []string{"train", "validation", "test"}, converts: []string{"default"},
		withheld: "test", without: map[string]any{"label": ""},
		prompt: "Cooking: He stirs. He", choices: []string{"a", "b", "c", "d"}, answer: 3,
	},
	"mmlu": {
		columns: map[string]string{"question": "text", "subject": "text", "choices": "texts", "answer": "int64"},
		row:     map[string]any{"question": "Which?", "subject": "abstract_algebra", "choices": []string{"a", "b", "c", "d"}, "answer": int64(2)},
		parts:   []string{"all", "abstract_algebra", "auxiliary_train"}, splits: []string{"test", "validation", "dev", "auxiliary_train"}, converts: []string{"all", "abstract_algebra"},
		prompt: "Which?\nA. a\nB. b\nC. c\nD. d\nAnswer:", choices: []string{"A", "B", "C", "D"}, answer: 2,
	},
	"mmlu_pro": {
		columns: map[string]string{
			"question_id": "int64", "question": "text", "options": "texts", "answer": "text", "answer_index": "int64", "cot_content": "text",
			"category": "text", "src": "text",
		},
		row: map[string]any{
			"question_id": int64(70), "question": "Which?", "options": []string{"a", "b", "c"}, "answer": "C", "answer_index": int64(2),
			"cot_content": "A: Let's think step by step. So it is (C).", "category": "law", "src": "stemez-Law",
		},
		parts: []string{"data"}, splits: []string{"test", "validation"}, converts: []string{"default"},
		prompt: "Question:\nWhich?\nOptions:\nA. a\nB. b\nC. c\nAnswer: Let's think step by step.", letter: "C",
	},
	"openbookqa": {
		columns: map[string]string{"id": "text", "question_stem": "text", "choices": "choices", "answerKey": "text"},
		row:     map[string]any{"id": "7-980", "question_stem": "The sun", "choices": choices([]string{"a", "b", "c", "d"}, []string{"A", "B", "C", "D"}), "answerKey": "D"},
		parts:   []string{"additional", "main"}, splits: []string{"train", "validation", "test"}, converts: []string{"additional", "main"},
		prompt: "The sun", choices: []string{"a", "b", "c", "d"}, answer: 3,
	},
	"piqa": {
		columns: map[string]string{"goal": "text", "sol1": "text", "sol2": "text", "label": "int64"},
		row:     map[string]any{"goal": "To cut", "sol1": "a", "sol2": "b", "label": int64(1)},
		parts:   []string{"data"}, splits: []string{"train", "validation", "test"}, converts: []string{"plain_text"},
		withheld: "test", without: map[string]any{"label": int64(-1)},
		prompt: "Question: To cut\nAnswer:", choices: []string{"a", "b"}, answer: 1,
	},
}

// listOf returns a list whose elements have a name: element in files of newer versions of Arrow,
// item in files of older versions.
func listOf(element string) parquet.Node {
	return parquet.Optional(listNode{parquet.Group{"list": parquet.Repeated(parquet.Group{element: parquet.Optional(parquet.String())})}})
}

// listNode gives a group the logical type of a list.
type listNode struct{ parquet.Node }

func (listNode) Type() parquet.Type { return listType{parquet.Group{}.Type()} }

type listType struct{ parquet.Type }

func (listType) LogicalType() *format.LogicalType {
	return &format.LogicalType{Value: new(format.ListType)}
}

// rowOf returns a row as in the file: leaves in the order of their names, nothing missing.
func rowOf(row map[string]any) parquet.Row {
	var out parquet.Row
	column := 0
	var add func(value any, definition int)
	add = func(value any, definition int) {
		switch v := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				add(v[name], definition+1)
			}
			return
		case []string:
			for i, text := range v {
				out = append(out, parquet.ValueOf(text).Level(min(i, 1), definition+3, column))
			}
		default:
			out = append(out, parquet.ValueOf(v).Level(0, definition+1, column))
		}
		column++
	}
	add(row, -1)
	return out
}

// file writes five rows, two per group. All columns are optional, as in data sets.
func (l layout) file(t *testing.T, element, split string) []byte {
	t.Helper()
	group := parquet.Group{}
	for name, kind := range l.columns {
		group[name] = map[string]parquet.Node{
			"text": parquet.Optional(parquet.String()), "texts": listOf(element), "int32": parquet.Optional(parquet.Leaf(parquet.Int32Type)),
			"int64": parquet.Optional(parquet.Leaf(parquet.Int64Type)), "choices": parquet.Optional(parquet.Group{"text": listOf(element), "label": listOf(element)}),
		}[kind]
	}
	row := maps.Clone(l.row)
	if split == l.withheld {
		maps.Copy(row, l.without)
	}
	options := []parquet.WriterOption{
		parquet.NewSchema("schema", group), parquet.MaxRowsPerRowGroup(2), parquet.KeyValueMetadata("huggingface", `{"info": {}}`), parquet.Compression(&snappy.Codec{}),
	}
	if element == "item" {
		options = append(options, parquet.Compression(&zstd.Codec{}), parquet.DataPageVersion(1))
	}
	var b bytes.Buffer
	w := parquet.NewWriter(&b, options...)
	one := rowOf(row)
	if _, err := w.WriteRows([]parquet.Row{one, one, one, one, one}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHubLayouts reads every data set from files with the same columns, types and paths as on the
// Hub: on its main branch, and on the branch of the Hub's conversions.
func TestHubLayouts(t *testing.T) {
	if len(layouts) != len(tasks) {
		t.Errorf("%d layouts of %d tasks", len(layouts), len(tasks))
	}
	for name, l := range layouts {
		for _, element := range []string{"element", "item"} {
			for _, converted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, converted %t", name, element, converted), func(t *testing.T) { l.check(t, named(t, name), element, converted) })
			}
		}
	}
}

func (l layout) check(t *testing.T, task Task, element string, convertedBranch bool) {
	root := t.TempDir()
	put := func(split string, path ...string) {
		place(t, filepath.Join(append([]string{root}, path...)...), string(l.file(t, element, split)))
	}
	for _, split := range l.splits {
		if convertedBranch {
			for _, part := range l.converts {
				put(split, "converted", part, split, "0000.parquet")
			}
			continue
		}
		for _, part := range l.parts {
			put(split, "main", part, split+"-00000-of-00001.parquet")
		}
	}
	place(t, filepath.Join(root, "main", "README.md"), "a data set")
	var wanted []string
	library := Library{Fetch: func(_ context.Context, repo, revision string, match func(string) bool) (string, error) {
		dir := filepath.Join(root, "main")
		if revision != "" {
			dir = filepath.Join(root, "converted")
		}
		if repo != task.Repo {
			t.Errorf("asked for %s", repo)
		}
		return dir, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			within, _ := filepath.Rel(dir, path)
			if err == nil && !entry.IsDir() && match(filepath.ToSlash(within)) {
				wanted = append(wanted, filepath.ToSlash(within))
			}
			return err
		})
	}}
	exam, err := library.Open(t.Context(), task, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if exam.Len() != 5 {
		t.Errorf("%d documents", exam.Len())
	}
	d := exam.docs[4]
	if d.prompt != l.prompt || !slices.Equal(d.choices, l.choices) || d.answer != l.answer || d.letter != l.letter {
		t.Errorf("read %+v", d)
	}
	for _, path := range wanted {
		if task.Config != "" && !strings.HasPrefix(path, task.Config+"/") || strings.Contains(path, "auxiliary") {
			t.Errorf("downloads %s", path)
		}
	}
}

// TestFoldersOfDocuments checks that links are followed, and that hidden names are read only on
// request.
func TestFoldersOfDocuments(t *testing.T) {
	dir := t.TempDir()
	place(t, filepath.Join(dir, "set", "blobs", "1"), "{}")
	place(t, filepath.Join(dir, "set", ".cache", "test.jsonl"), "{}")
	place(t, filepath.Join(dir, "set", "main", "._test.jsonl"), "{}")
	place(t, filepath.Join(dir, "more", "test.jsonl"), "{}")
	for link, target := range map[string]string{
		"set/main/test.jsonl": "../blobs/1", "set/more": "../more", "set/main/up": "..", "linked": "set",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		root   string
		hidden bool
		want   []string
	}{
		{"set", false, []string{"main/test.jsonl", "more/test.jsonl"}},
		{"linked", false, []string{"main/test.jsonl", "more/test.jsonl"}},
		{"set", true, []string{".cache/test.jsonl", "main/test.jsonl", "more/test.jsonl"}},
		{"absent", false, nil},
	} {
		root := filepath.Join(dir, test.root)
		got, _, err := Library{Hidden: test.hidden}.listed(root, "", "test")
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range got {
			if got[i], err = filepath.Rel(root, path); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s, hidden %v: %q, want %q", test.root, test.hidden, got, test.want)
		}
	}
}
