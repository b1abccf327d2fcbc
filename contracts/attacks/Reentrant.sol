// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Only for tests: takes money and calls the payer again while it does.
contract Reentrant {
    address private immutable ledger;
    bytes private again;
    uint256 public tries;
    uint256 public gotIn;

    constructor(address ledger_) payable {
        ledger = ledger_;
    }

    function prepare(bytes calldata data) external {
        again = data;
    }

    function act(bytes calldata data, uint256 value) external {
        (bool done, bytes memory said) = ledger.call{value: value}(data);
        if (!done) {
            assembly ("memory-safe") {
                revert(add(said, 32), mload(said))
            }
        }
    }

    receive() external payable {
        tries++;
        (bool done,) = ledger.call(again);
        if (done) gotIn++;
    }
}
