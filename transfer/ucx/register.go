package ucx

import (
	"time"

	"github.com/krait-ml/krait/transfer/transport"
)

func init() {
	transport.Register("ucx", transport.Carriage{
		Available: func() error { _, err := Version(); return err },
		Sender:    NewSender,
		Receiver: func(stall time.Duration) (transport.AddressedReceiver, error) {
			r, err := NewReceiver(stall)
			if err != nil {
				return nil, err // and no receiver that is a nil pointer
			}
			return r, nil
		},
	})
}
