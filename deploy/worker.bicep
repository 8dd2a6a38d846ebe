// Everything that Async Caller needs as a worker on Azure Container Apps, in one resource group, without a Functions
// host. docs/worker.md says how to deploy it. There is no parameter for a network or a closed storage account.
// `go test ./handler` compares it with the code, as text: handler/worker_test.go expects its layout.

@description('Begins the names of the resources: lower-case letters, digits and single hyphens, a letter first.')
@minLength(2)
@maxLength(18)
param name string = 'async-caller'

@description('Region of the resources.')
param location string = resourceGroup().location

@description('The environment of azd, for its tag; empty without azd.')
param environmentName string = ''

@description('Image of the worker, such as ghcr.io/OWNER/async-caller:VERSION-worker.')
param image string

@description('Registry from which the identity reads the image, such as acme.azurecr.io; empty: everybody may read it.')
param registry string = ''

@description('Replicas that always run. docs/worker.md says what 0 means.')
@minValue(0)
@maxValue(3)
param minReplicas int = 1

@description('Redundancy of the storage account that is made. Standard_ZRS needs a region with availability zones.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param storageSku string = 'Standard_ZRS'

@description('Name of an existing storage account, such as that of main.bicep; empty: one is made.')
param accountName string = ''

@description('Resource group of accountName; empty: that of the worker.')
param accountGroup string = ''

@description('Name of the app for limits and heartbeats; empty: the name of the Container App.')
param appName string = ''

@description('Environment variables by name: the settings of Async Caller, secrets as Key Vault references.')
param settings { *: string } = {}

@description('Queues of routes.json, as `async-caller routes sync` prints them; each gets a poison queue.')
param routedQueues string[] = []

@description('Object id of who sends and operates; empty: nobody gets a role here.')
param operatorPrincipalId string = deployer().objectId

@description('Kind of operatorPrincipalId. A pipeline has no user principal name.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param operatorPrincipalType string = operatorPrincipalId == deployer().objectId && empty(deployer().userPrincipalName) ? 'ServicePrincipal' : 'User'

@description('Receives the alerts; empty: no action group is made.')
param alertEmail string = ''

@description('Ids of further action groups that receive the alerts; empty ones are left out.')
param actionGroupIds string[] = []

@description('Ends the names of the resources. It differs from that of main.bicep with the same name.')
var token = uniqueString(resourceGroup().id, name, 'worker')

@description('Name of the Container App, and of all resources of which there is one.')
var resourceName = '${name}-${token}'

@description('Tags of the resources.')
var tags = empty(environmentName) ? {} : { 'azd-env-name': environmentName }

// With two names, each of two apps on an account would count the limits alone.
@description('Name of the storage account.')
var account = empty(accountName)
  ? (empty(accountGroup) ? 'ac${token}' : fail('accountGroup has no effect without accountName'))
  : (empty(appName) ? fail('accountName needs appName: the name of the app that uses the account') : accountName)

@description('The queues of functions/ and of routes; each has a poison queue.')
var queues = union(['async-caller'], map(range(1, 10), i => 'async-caller-${i}'), routedQueues)

@description('Begins a Key Vault reference, as in the settings of main.bicep.')
var referenceStart = '@Microsoft.KeyVault('

@description('Settings that are Key Vault references. Each is a secret of the Container App.')
var secrets = map(filter(items(settings), setting => startsWith(setting.value, referenceStart)), setting => {
  setting: setting.key
  name: toLower(replace(setting.key, '_', '-'))
  url: startsWith(setting.value, '${referenceStart}SecretUri=https://') && endsWith(setting.value, ')')
    ? replace(replace(replace(setting.value, '${referenceStart}SecretUri=', ''), '/)', ''), ')', '')
    : fail('a Key Vault reference must be @Microsoft.KeyVault(SecretUri=URL)')
})

@description('Port on which the worker says whether it is ready. Only the platform reaches it.')
var healthPort = 8080

resource storage 'Microsoft.Storage/storageAccounts@2026-04-01' = if (empty(accountName)) {
  name: account
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: storageSku }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: 'Enabled'
  }
}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: resourceName
  location: location
  tags: tags
}

module data 'worker-account.bicep' = {
  scope: resourceGroup(empty(accountGroup) ? resourceGroup().name : accountGroup)
  params: {
    accountName: account
    queues: queues
    identityId: identity.id
    identityPrincipalId: identity.properties.principalId
    operatorPrincipalId: operatorPrincipalId
    operatorPrincipalType: operatorPrincipalType
  }
  dependsOn: [storage]
}

resource workspace 'Microsoft.OperationalInsights/workspaces@2026-03-01' = {
  name: resourceName
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: 30
  }
}

resource platform 'Microsoft.App/managedEnvironments@2026-01-01' = {
  name: resourceName
  location: location
  tags: tags
  properties: {
    appLogsConfiguration: { destination: 'azure-monitor' } // the other destination needs a key of the workspace
    workloadProfiles: [{ name: 'Consumption', workloadProfileType: 'Consumption' }]
  }
}

// The failures of the scaler are in the system's log. No later version of this type has categories.
#disable-next-line use-recent-api-versions
resource platformLog 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: platform
  name: 'log'
  properties: {
    workspaceId: workspace.id
    logs: [
      { category: 'ContainerAppConsoleLogs', enabled: true }
      { category: 'ContainerAppSystemLogs', enabled: true }
    ]
  }
}

resource app 'Microsoft.App/containerApps@2026-01-01' = {
  name: resourceName
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identity.id}': {} }
  }
  properties: {
    environmentId: platform.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      registries: empty(registry) ? [] : [{ server: registry, identity: identity.id }]
      secrets: map(secrets, secret => { name: secret.name, keyVaultUrl: secret.url, identity: identity.id })
    }
    template: {
      // The worker ends when its calls have ended, at most 5 s after the longest call. So an update or fewer replicas
      // make no call twice.
      terminationGracePeriodSeconds: 200
      containers: [
        {
          name: 'worker'
          image: image
          args: ['--health', string(healthPort)]
          resources: { cpu: json('0.5'), memory: '1Gi' }
          env: concat([
            { name: 'AzureWebJobsStorage__accountName', value: data.outputs.openAccountName }
            { name: 'AzureWebJobsStorage__credential', value: 'managedidentity' }
            { name: 'AzureWebJobsStorage__clientId', value: identity.properties.clientId }
            { name: 'ASYNC_CALLER_APP', value: empty(appName) ? resourceName : appName }
          ], map(filter(items(settings), setting => !startsWith(setting.value, referenceStart)), setting => {
            name: setting.key
            value: setting.value
          }), map(secrets, secret => { name: secret.setting, secretRef: secret.name }))
          // A liveness probe would restart all replicas while storage is away, and interrupt their calls.
          probes: [
            {
              type: 'Readiness'
              httpGet: { path: '/', port: healthPort }
              periodSeconds: 5
              failureThreshold: 3
            }
          ]
        }
      ]
      scale: {
        minReplicas: minReplicas
        // The scaler does not know how many replicas help: it does not see the calls in progress, and from 32 visible
        // messages on it also counts the scheduled ones, with which a replica has nothing to do.
        maxReplicas: 3
        // The module has made the queues: a rule for one that does not exist would keep the app up.
        rules: [
          for queueName in queues: {
            name: queueName
            custom: {
              type: 'azure-queue'
              identity: identity.id
              metadata: {
                accountName: account
                queueName: queueName
                queueLength: '256' // the calls of a queue that one replica makes at once
                // `all` counts the scheduled messages: those for a target that is down would keep three replicas.
                // Without a replica, however, nobody would receive a scheduled message in time for its deadline.
                queueLengthStrategy: minReplicas == 0 ? 'all' : 'visibleonly'
              }
            }
          }
        ]
      }
    }
  }
  dependsOn: [platformLog]
}

module alerts 'alerts.bicep' = {
  params: {
    name: name
    token: token
    location: location
    tags: tags
    scopeId: workspace.id
    prefix: join([
      'let traces = ContainerAppConsoleLogs | where ContainerAppName == "${resourceName}"'
      '| project timestamp = TimeGenerated, message = tostring(Log);\n'
    ], ' ')
    alwaysOn: minReplicas > 0
    alertEmail: alertEmail
    actionGroupIds: actionGroupIds
  }
}

@description('Name of the Container App.')
output containerAppName string = app.name

@description('Name of the storage account.')
output accountName string = account

@description('Object id of the identity, to give it roles on a registry or a Key Vault.')
output identityPrincipalId string = identity.properties.principalId
