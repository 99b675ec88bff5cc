package constrain

// classes is a set of classes of bytes.
type classes uint64

// bytesOf lists the bytes of each class; classOf has the class of each byte, and rankOf its place
// there. Patterns have whole
// classes mostly, in loops above all: a class is the small letters, the capitals, the digits, one
// other character of ASCII, the controls without a line's, or the bytes that are of one use in
// UTF-8.
var bytesOf, classOf, rankOf = func() (list [maxClasses][]byte, of, rank [256]uint8) {
	numbers := map[byte]uint8{}
	for i := range 256 {
		b := byte(i)
		first := b // of its class
		switch {
		case 'a' <= b && b <= 'z':
			first = 'a'
		case 'A' <= b && b <= 'Z':
			first = 'A'
		case '0' <= b && b <= '9':
			first = '0'
		case b == lastASCII || b < ' ' && b != '\t' && b != '\n' && b != '\r':
			first = 0
		case 0x80 <= b && b <= 0xbf: // behind the first of a character
			first = 0x80
		case b == 0xc0 || b == 0xc1 || b > 0xf4: // none
			first = 0xc0
		case 0xc2 <= b && b <= 0xdf: // the first of two
			first = 0xc2
		case 0xe1 <= b && b <= 0xef && b != 0xed: // of three, but for those with fewer behind them
			first = 0xe1
		case 0xf1 <= b && b <= 0xf3: // of four
			first = 0xf1
		}
		k, ok := numbers[first]
		if !ok {
			k = uint8(len(numbers))
			numbers[first] = k
		}
		of[b], rank[b] = k, uint8(len(list[k]))
		list[k] = append(list[k], b)
	}
	return list, of, rank
}()

// maxClasses is how many classes there are.
const maxClasses = 49
