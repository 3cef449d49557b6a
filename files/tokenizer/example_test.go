package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// The byte-level tokenizer. Load reads the tokenizer in a model's tokenizer.json.
func Example() {
	coder := tokenizer.Bytes()
	ids, err := coder.Encode([]byte("Go!"))
	if err != nil {
		log.Fatal(err)
	}
	text, err := coder.Decode(ids)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tokens: %v is %q\n", coder.VocabSize(), ids, text)

	// Output:
	// 256 tokens: [71 111 33] is "Go!"
}

// A model writes token by token. Bytes of an incomplete character are held back.
func ExampleTokenizer_NewStream() {
	stream, err := tokenizer.Bytes().NewStream(nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []int32{'n', 'a', 0xc3, 0xaf, 'v', 'e'} {
		text, err := stream.Next(id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q ", text)
	}

	// Output:
	// "n" "a" "" "ï" "v" "e"
}
