package openai_test

import (
	"log"
	"net/http"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// The embedded model answers at http://127.0.0.1:8080/v1/completions.
func Example() {
	m, err := krait.Embedded(krait.Options{Slots: 16})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", s))
}
