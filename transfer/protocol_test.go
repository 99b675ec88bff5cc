package transfer

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// TestProtocol holds all fields of all messages to those that testdata/formats has for this version
// of the protocol. A change needs another version, since a side refuses fields that it does not
// know.
func TestProtocol(t *testing.T) {
	var b strings.Builder
	for _, m := range []struct {
		kind  wire.Kind
		value any
	}{
		{kindKnock, &knock{}}, {kindHello, &hello{}}, {kindWelcome, &welcome{}}, {kindRefuse, &refuse{}},
		{kindPrefill, &prefill{}}, {kindProgress, &progress{}}, {kindReady, &ready{}}, {kindFailed, &failed{}},
		{kindRelease, &release{}}, {kindReleased, &released{}}, {kindCancel, &cancelled{}}, {kindData, &data{}},
	} {
		fill(reflect.ValueOf(m.value).Elem())
		fmt.Fprintf(&b, "%d %s\n", m.kind, mustJSON(m.value))
	}
	file := fmt.Sprintf("../testdata/formats/v%d/transfer", Protocol)
	text, err := os.ReadFile(file)
	if err != nil || string(text) != b.String() {
		t.Errorf("the messages are not those of version %d: count Protocol up, and store these (%v)\n%s", Protocol, err, b.String())
	}
}

// fill sets all fields of a value, so that JSON shows them.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1)
	default:
		panic("BUG: no value for " + v.Type().String())
	}
}
