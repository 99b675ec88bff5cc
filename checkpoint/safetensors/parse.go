package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/ordered"
)

// maxHeader is the format's limit on the size of the header, in bytes. The others are
// ours, far above what is written anywhere: a header may have millions of either.
const (
	maxHeader  = 100_000_000
	maxTensors = 1 << 18
	maxAxes    = 64
)

// Parse reads a file from bytes in memory. The tensors are views of data, which
// must not change afterwards. The name is used in errors only.
//
// It is an error when the header is malformed, when a tensor's dtype is not
// known, when its offsets do not match its dtype and shape or lie outside the
// file, and when the tensors overlap or leave bytes of the file uncovered.
func Parse(name string, data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.name = name
	return f, nil
}

func parse(data []byte) (*File, error) {
	header, body, err := split(data)
	if err != nil {
		return nil, err
	}
	entries, metadata, err := readHeader(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := checkLayout(entries, len(body)); err != nil {
		return nil, err
	}
	f := &File{tensors: make(map[string]Tensor, len(entries)), metadata: metadata}
	for _, e := range entries {
		// The capacity is cut too: append must not write into the next tensor.
		f.tensors[e.name] = Tensor{e.name, e.dtype, e.shape, body[e.begin:e.end:e.end]}
		f.names = append(f.names, e.name)
	}
	slices.Sort(f.names)
	return f, nil
}

// split cuts a file into its header and its tensor data.
func split(data []byte) (header, body []byte, err error) {
	const prefix = 8 // the header's length
	if err := files.CheckDownload(data); err != nil {
		return nil, nil, err
	}
	switch {
	case len(data) < prefix:
		return nil, nil, fmt.Errorf("the file has %d bytes, the header length alone takes %d: it is truncated or not safetensors", len(data), prefix)
	}
	n, rest := binary.LittleEndian.Uint64(data), data[prefix:]
	switch {
	case n > maxHeader:
		return nil, nil, fmt.Errorf("header length is %d, the format's limit is %d: the file is not safetensors or is damaged", n, maxHeader)
	case n > uint64(len(rest)):
		return nil, nil, fmt.Errorf("header length is %d, only %d bytes follow: the file is truncated; download it again", n, len(rest))
	case n == 0 || rest[0] != '{':
		return nil, nil, errors.New("the header does not begin with '{': the file is not safetensors or is damaged")
	}
	return rest[:n], rest[n:], nil
}

// checkLayout sorts the entries by their place in the file and checks that each
// has its right size and that together they cover the data without a gap.
func checkLayout(entries []entry, dataSize int) error {
	for _, e := range entries {
		if err := e.check(dataSize); err != nil {
			return fmt.Errorf("tensor %s: %w", files.Quote(e.name), err)
		}
	}
	ordered.Sort(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	end, last := 0, "" // of the tensors so far
	for _, e := range entries {
		switch {
		case e.begin < end:
			return fmt.Errorf("tensor %s begins at byte %d of the data, inside tensor %s, which ends at %d: tensors must not overlap",
				files.Quote(e.name), e.begin, files.Quote(last), end)
		case e.begin > end:
			return fmt.Errorf("bytes %d to %d of the data, before tensor %s, belong to no tensor: the format forbids holes",
				end, e.begin, files.Quote(e.name))
		}
		end, last = e.end, e.name
	}
	if end != dataSize {
		return fmt.Errorf("the tensors end at byte %d of the data, the file has %d: the bytes at the end belong to no tensor", end, dataSize)
	}
	return nil
}

// check compares the entry's offsets with its type and with the file.
func (e entry) check(dataSize int) error {
	size, err := byteSize(e.dtype, e.shape)
	switch {
	case err != nil:
		return err
	case e.begin < 0 || e.end < e.begin:
		return fmt.Errorf("data_offsets [%d, %d] are not a range", e.begin, e.end)
	case e.end-e.begin != size:
		return fmt.Errorf("%s needs %d bytes, data_offsets [%d, %d] hold %d",
			describe(e.dtype, e.shape), size, e.begin, e.end, e.end-e.begin)
	case e.end > dataSize:
		return fmt.Errorf("data_offsets [%d, %d] reach beyond the %d bytes of data: the file is truncated; download it again",
			e.begin, e.end, dataSize)
	}
	return nil
}
