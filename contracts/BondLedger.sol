// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// Bonds of workers, what is held for and against them, and who may use the network for which job.
///
/// Money is moved in two ways only: in by `stake`, out by `withdraw` and `claim`, both of which the one who is paid calls himself. Everything else moves shares of what is held here
/// from one account to another. What is held is the sum of all stakes and all credits; money that is forced on the contract in other ways belongs to nobody and is never paid out.
contract BondLedger {
    struct Account {
        /// The fleet's name for this worker: its Ed25519 public key. Zero as long as there is no account.
        bytes32 identity;
        /// Everything that the worker has here, the two below included.
        uint128 stake;
        /// Of it: bound to jobs.
        uint128 locked;
        /// Of it: announced to be withdrawn. It can be slashed until it has left.
        uint128 leaving;
        uint64 leavesAt;
        uint8 reputation;
    }

    struct Bond {
        uint128 amount;
        /// From then on anybody may release it: a settler that has gone keeps nobody's money.
        uint64 until;
    }

    /// A worker's bond for a job that is to be cut, and why.
    struct Penalty {
        /// Names the fact that is punished: a second penalty of this name changes nothing.
        bytes32 settlement;
        address worker;
        bytes32 job;
        uint16 basisPoints;
        uint8 reason;
        /// How much reputation is lost.
        uint8 reputation;
        /// SHA-256 of the evidence.
        bytes32 evidence;
        /// Those who found it out; they share what the protocol does not get.
        address[] beneficiaries;
    }

    uint16 public constant WHOLE = 10_000;
    uint8 public constant REPUTATION_AT_FIRST = 50;
    uint8 public constant REPUTATION_AT_MOST = 100;
    uint64 public constant LONGEST_DELAY = 60 days;
    uint64 public constant LONGEST_LOCK = 60 days;
    uint256 public constant MOST_BENEFICIARIES = 64;

    address public owner;
    address public proposedOwner;
    address public treasury;
    /// The protocol's part of what is slashed, in hundredths of a percent.
    uint16 public protocolShare;
    uint64 public withdrawalDelay;
    bool public paused;
    bool private entered;

    mapping(address => bool) public settlers;
    mapping(address => Account) private accounts;
    mapping(address => mapping(bytes32 => Bond)) private bonds;
    mapping(address => uint256) public credit;
    /// The block in which a settlement was made; zero if it was not.
    mapping(bytes32 => uint256) public settledIn;
    /// Until when a job may use the network.
    mapping(bytes32 => uint64) public networkUntil;

    event Staked(address indexed worker, bytes32 indexed identity, uint256 amount, uint256 stake);
    event WithdrawalAnnounced(address indexed worker, uint256 leaving, uint64 leavesAt);
    event WithdrawalCanceled(address indexed worker);
    event Withdrawn(address indexed worker, uint256 amount, uint256 stake);
    event Locked(address indexed worker, bytes32 indexed job, uint256 amount, uint64 until);
    event Released(address indexed worker, bytes32 indexed job, uint256 amount);
    event Slashed(
        bytes32 indexed settlement, address indexed worker, bytes32 indexed job,
        uint8 reason, uint16 basisPoints, uint256 amount, bytes32 evidence
    );
    event Confirmed(bytes32 indexed settlement, address indexed worker, bytes32 indexed job);
    event ReputationChanged(address indexed worker, uint8 from, uint8 to);
    event Credited(address indexed to, bytes32 indexed settlement, uint256 amount);
    event Claimed(address indexed by, uint256 amount);
    event NetworkPermitted(bytes32 indexed job, uint64 until);
    event NetworkRevoked(bytes32 indexed job);
    event SettlerSet(address indexed settler, bool allowed);
    event TermsSet(address indexed treasury, uint16 protocolShare, uint64 withdrawalDelay);
    event PausedSet(bool paused);
    event OwnerProposed(address indexed proposed);
    event OwnerChanged(address indexed from, address indexed to);

    error NotOwner(address caller);
    error NotSettler(address caller);
    error IsPaused();
    error Reentered();
    error NoAccount(address worker);
    error NoIdentity();
    error OtherIdentity(bytes32 known);
    error NothingToDo();
    error TooMuch(uint256 asked, uint256 free);
    error TooEarly(uint64 from);
    error AlreadyLocked(bytes32 job);
    error NotLocked(bytes32 job);
    error AlreadySettled(bytes32 settlement);
    error OutOfBounds(string what);
    error NotPaid();

    modifier onlyOwner() {
        if (msg.sender != owner) revert NotOwner(msg.sender);
        _;
    }

    modifier onlySettler() {
        if (!settlers[msg.sender]) revert NotSettler(msg.sender);
        _;
    }

    modifier whenRunning() {
        if (paused) revert IsPaused();
        _;
    }

    modifier once() {
        if (entered) revert Reentered();
        entered = true;
        _;
        entered = false;
    }

    constructor(address treasury_, uint16 protocolShare_, uint64 withdrawalDelay_) {
        owner = msg.sender;
        emit OwnerChanged(address(0), msg.sender);
        _setTerms(treasury_, protocolShare_, withdrawalDelay_);
    }

    // What a worker does with its own money.

    /// Adds to the sender's bond. The first time binds the sender to the identity, for good.
    function stake(bytes32 identity) external payable whenRunning once {
        if (identity == 0) revert NoIdentity();
        if (msg.value == 0) revert NothingToDo();
        Account storage account = accounts[msg.sender];
        if (account.identity == 0) {
            account.identity = identity;
            account.reputation = REPUTATION_AT_FIRST;
            emit ReputationChanged(msg.sender, 0, REPUTATION_AT_FIRST);
        } else if (account.identity != identity) {
            revert OtherIdentity(account.identity);
        }
        uint256 sum = uint256(account.stake) + msg.value;
        if (sum > type(uint128).max) revert OutOfBounds("stake");
        account.stake = uint128(sum);
        emit Staked(msg.sender, identity, msg.value, sum);
    }

    /// Says that so much is to leave. It can leave when the delay has passed; saying it again begins the delay anew.
    function announceWithdrawal(uint128 amount) external whenRunning once {
        Account storage account = _known(msg.sender);
        if (amount == 0) revert NothingToDo();
        uint128 free = account.stake - account.locked;
        if (amount > free) revert TooMuch(amount, free);
        account.leaving = amount;
        account.leavesAt = uint64(block.timestamp) + withdrawalDelay;
        emit WithdrawalAnnounced(msg.sender, amount, account.leavesAt);
    }

    function cancelWithdrawal() external whenRunning once {
        Account storage account = _known(msg.sender);
        if (account.leaving == 0) revert NothingToDo();
        account.leaving = 0;
        account.leavesAt = 0;
        emit WithdrawalCanceled(msg.sender);
    }

    /// Pays out what was announced, less what was slashed meanwhile.
    function withdraw() external whenRunning once {
        Account storage account = _known(msg.sender);
        uint128 amount = account.leaving;
        if (amount == 0) revert NothingToDo();
        if (block.timestamp < account.leavesAt) revert TooEarly(account.leavesAt);
        account.leaving = 0;
        account.leavesAt = 0;
        account.stake -= amount;
        emit Withdrawn(msg.sender, amount, account.stake);
        _pay(msg.sender, amount);
    }

    /// Pays out the sender's share of what was slashed.
    function claim() external whenRunning once {
        uint256 amount = credit[msg.sender];
        if (amount == 0) revert NothingToDo();
        credit[msg.sender] = 0;
        emit Claimed(msg.sender, amount);
        _pay(msg.sender, amount);
    }

    // What is decided about a worker.

    /// Binds a part of a worker's bond to a job. What is announced to leave cannot be bound.
    function lock(bytes32 job, address worker, uint128 amount, uint64 until) external onlySettler whenRunning once {
        _lock(job, worker, amount, until);
    }

    /// The same by a name, which counts once. What is bound to the job already stays as it is.
    function lockFor(bytes32 settlement, bytes32 job, address worker, uint128 amount, uint64 until)
        external onlySettler whenRunning once
    {
        _settle(settlement);
        if (bonds[worker][job].until == 0) _lock(job, worker, amount, until);
    }

    /// Ends a lock: a settler at any time, everybody else when it has run out.
    function release(bytes32 job, address worker) external whenRunning once {
        Bond memory bond = bonds[worker][job];
        if (bond.until == 0) revert NotLocked(job);
        if (!settlers[msg.sender] && block.timestamp < bond.until) revert TooEarly(bond.until);
        _release(job, worker, bond.amount);
    }

    /// Ends a lock by a name, which counts once. Where there is none, there is nothing to end.
    function releaseFor(bytes32 settlement, bytes32 job, address worker) external onlySettler whenRunning once {
        _known(worker);
        _settle(settlement);
        Bond memory bond = bonds[worker][job];
        if (bond.until != 0) _release(job, worker, bond.amount);
    }

    /// Takes a part of a worker's bond for a job: of what is locked for it, or, where nothing is, of everything that is not locked for others.
    function slash(Penalty calldata penalty) external onlySettler whenRunning once {
        if (penalty.basisPoints > WHOLE) revert OutOfBounds("basisPoints");
        if (penalty.beneficiaries.length > MOST_BENEFICIARIES) revert OutOfBounds("beneficiaries");
        Account storage account = _known(penalty.worker);
        _settle(penalty.settlement);
        Bond storage bond = bonds[penalty.worker][penalty.job];
        // A lock that is used up is still one: the job has cost what it can cost.
        bool isLocked = bond.until != 0;
        uint256 base = isLocked ? bond.amount : account.stake - account.locked;
        uint128 amount = uint128(base * penalty.basisPoints / WHOLE);
        account.stake -= amount;
        if (isLocked) {
            bond.amount -= amount;
            account.locked -= amount;
        }
        uint128 free = account.stake - account.locked;
        if (account.leaving > free) account.leaving = free;
        uint8 left = account.reputation > penalty.reputation ? account.reputation - penalty.reputation : 0;
        _setReputation(penalty.worker, account, left);
        emit Slashed(
            penalty.settlement, penalty.worker, penalty.job, penalty.reason, penalty.basisPoints, amount, penalty.evidence
        );
        _share(penalty, amount);
    }

    /// Counts an answer that was confirmed.
    function confirm(bytes32 settlement, address worker, bytes32 job, uint8 reputation) external onlySettler whenRunning once {
        if (reputation > REPUTATION_AT_MOST) revert OutOfBounds("reputation");
        Account storage account = _known(worker);
        _settle(settlement);
        uint16 sum = uint16(account.reputation) + reputation;
        _setReputation(worker, account, sum > REPUTATION_AT_MOST ? REPUTATION_AT_MOST : uint8(sum));
        emit Confirmed(settlement, worker, job);
    }

    /// Lets a job use the network until then. A job is named by the digest of its payload, so that what is permitted is what was read.
    function permitNetwork(bytes32 job, uint64 until) external onlySettler whenRunning once {
        if (until <= block.timestamp) revert OutOfBounds("until");
        networkUntil[job] = until;
        emit NetworkPermitted(job, until);
    }

    function revokeNetwork(bytes32 job) external onlySettler whenRunning once {
        if (networkUntil[job] == 0) revert NothingToDo();
        networkUntil[job] = 0;
        emit NetworkRevoked(job);
    }

    // What the owner decides.

    function setSettler(address settler, bool allowed) external onlyOwner {
        settlers[settler] = allowed;
        emit SettlerSet(settler, allowed);
    }

    /// A delay that was announced before stays as it was.
    function setTerms(address treasury_, uint16 protocolShare_, uint64 withdrawalDelay_) external onlyOwner {
        _setTerms(treasury_, protocolShare_, withdrawalDelay_);
    }

    function setPaused(bool paused_) external onlyOwner {
        paused = paused_;
        emit PausedSet(paused_);
    }

    function proposeOwner(address proposed) external onlyOwner {
        proposedOwner = proposed;
        emit OwnerProposed(proposed);
    }

    function acceptOwnership() external {
        if (msg.sender != proposedOwner) revert NotOwner(msg.sender);
        emit OwnerChanged(owner, msg.sender);
        owner = msg.sender;
        proposedOwner = address(0);
    }

    // What everybody may ask.

    function accountOf(address worker) external view returns (Account memory) {
        return accounts[worker];
    }

    function bondOf(address worker, bytes32 job) external view returns (Bond memory) {
        return bonds[worker][job];
    }

    /// Whether a run of this job may have network now. While the contract is paused, none may.
    function networkPermitted(bytes32 job) external view returns (bool) {
        return !paused && block.timestamp < networkUntil[job];
    }

    function _known(address worker) private view returns (Account storage account) {
        account = accounts[worker];
        if (account.identity == 0) revert NoAccount(worker);
    }

    function _lock(bytes32 job, address worker, uint128 amount, uint64 until) private {
        Account storage account = _known(worker);
        if (amount == 0) revert NothingToDo();
        if (until <= block.timestamp || until > block.timestamp + LONGEST_LOCK) revert OutOfBounds("until");
        if (bonds[worker][job].until != 0) revert AlreadyLocked(job);
        uint128 free = account.stake - account.locked - account.leaving;
        if (amount > free) revert TooMuch(amount, free);
        bonds[worker][job] = Bond(amount, until);
        account.locked += amount;
        emit Locked(worker, job, amount, until);
    }

    function _release(bytes32 job, address worker, uint128 amount) private {
        delete bonds[worker][job];
        accounts[worker].locked -= amount;
        emit Released(worker, job, amount);
    }

    function _settle(bytes32 settlement) private {
        if (settledIn[settlement] != 0) revert AlreadySettled(settlement);
        settledIn[settlement] = block.number;
    }

    function _setReputation(address worker, Account storage account, uint8 to) private {
        uint8 from = account.reputation;
        if (from == to) return;
        account.reputation = to;
        emit ReputationChanged(worker, from, to);
    }

    /// Everybody gets the same; what does not divide is the protocol's.
    function _share(Penalty calldata penalty, uint256 amount) private {
        uint256 count = penalty.beneficiaries.length;
        uint256 each = count == 0 ? 0 : (amount - amount * protocolShare / WHOLE) / count;
        for (uint256 i = 0; i < count; i++) {
            address to = penalty.beneficiaries[i];
            if (to == penalty.worker || to == address(0)) revert OutOfBounds("beneficiaries");
            _credit(to, penalty.settlement, each);
        }
        _credit(treasury, penalty.settlement, amount - each * count);
    }

    function _credit(address to, bytes32 settlement, uint256 amount) private {
        if (amount == 0) return;
        credit[to] += amount;
        emit Credited(to, settlement, amount);
    }

    function _setTerms(address treasury_, uint16 protocolShare_, uint64 withdrawalDelay_) private {
        if (treasury_ == address(0)) revert OutOfBounds("treasury");
        if (protocolShare_ > WHOLE) revert OutOfBounds("protocolShare");
        if (withdrawalDelay_ > LONGEST_DELAY) revert OutOfBounds("withdrawalDelay");
        treasury = treasury_;
        protocolShare = protocolShare_;
        withdrawalDelay = withdrawalDelay_;
        emit TermsSet(treasury_, protocolShare_, withdrawalDelay_);
    }

    function _pay(address to, uint256 amount) private {
        (bool paid,) = to.call{value: amount}("");
        if (!paid) revert NotPaid();
    }
}
